"""How fast is the engine, and what are populations good for?"""
