// The only kind of function that headers in shared/ and per_isa/ may have outside of namespaces of one instruction set.
#pragma once

// Never emitted on its own. Kernels are compiled for several instruction sets, and the linker keeps one copy of an
// inline function: it could be one that this machine cannot run.
#define SHOAL_INLINE inline __attribute__((always_inline))
