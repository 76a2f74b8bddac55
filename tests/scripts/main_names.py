"""What a script finds when it begins: its names, its arguments, its place."""

# args: one two --three=3 -v
# run: status=healthy steps=0
# when: thorough

print(sorted(globals()))
print(__name__, __package__, __spec__, __doc__, type(__loader__).__name__)

import builtins
import os
import sys

print(__builtins__ is builtins, "__cached__" in globals() and globals()["__cached__"])
print(sys.modules["__main__"].__dict__ is globals())
print(type(sys.modules["__main__"]).__name__, sys.modules["__main__"].__name__)
print(os.path.basename(__file__), os.path.isabs(__file__), sys.argv[0] == __file__)
print(len(sys.argv), sys.argv[1:])
print(os.path.samefile(sys.path[0], os.path.dirname(os.path.abspath(__file__))))
print(sum(os.path.exists(folder) and os.path.samefile(folder, sys.path[0]) for folder in sys.path))
print(os.path.exists("main_names.py"), sorted(os.listdir(".")))
print(sys._getframe().f_code.co_name, sys._getframe().f_code.co_filename == __file__)
print(sys._getframe().f_globals is sys._getframe().f_locals)


def annotated(value: int) -> str:
    return str(value)


print(annotated.__annotations__, annotated.__module__, annotated.__code__.co_filename == __file__)
