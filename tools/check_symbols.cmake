# cmake -DNM=nm -DALLOWED=kernel_avx2 -DOBJECTS=a.o;b.o -P check_symbols.cmake
# Objects that are compiled per instruction set may define one symbol for others: their table. Of any other one (an inline
# function, a template of the standard library) the linker would keep one copy for all, maybe one that a machine cannot run.
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} -P -g ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" lines "${symbols}")
  set(found 0)
  foreach(line IN LISTS lines)
    if(line MATCHES "^[^ ]+ U( |$)")
      continue()
    elseif(line MATCHES "^_*Z?N?[0-9a-z]*${ALLOWED}(Ev)? T ")
      math(EXPR found "${found} + 1")
    else()
      message(FATAL_ERROR "${object} defines a symbol besides ${ALLOWED}: ${line}\n"
        "Make it SHOAL_INLINE, put it into a namespace without a name, or move it to native/once/.")
    endif()
  endforeach()
  if(NOT found EQUAL 1)
    message(FATAL_ERROR "${object} does not define ${ALLOWED}")
  endif()
endforeach()
