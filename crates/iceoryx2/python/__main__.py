"""Runs a Python program, for which `import iceoryx2` means this module:

    python -m ginnel_iceoryx2 PROGRAM.py [ARGUMENTS]

What stands behind it is as behind `python` itself: a file, `-m MODULE`, `-c TEXT`. Programs that it
starts inherit this, by PYTHONPATH. With `--path` alone it prints what to put there.
"""

import os
import sys

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "as_iceoryx2")
arguments = sys.argv[1:]
if arguments == ["--path"]:
    print(folder)
elif not arguments or arguments[0] in ("-h", "--help"):
    print(__doc__.strip())
else:
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, others] if others else [folder])
    os.execv(sys.executable, [sys.executable, *arguments])
