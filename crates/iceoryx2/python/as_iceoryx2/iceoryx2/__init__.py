"""`iceoryx2`, where the module `ginnel_iceoryx2` is to stand for it (`python -m ginnel_iceoryx2`)."""

import sys

import ginnel_iceoryx2

_OWN = ginnel_iceoryx2.__name__
for _name, _module in list(sys.modules.items()):
    if _name == _OWN or _name.startswith(_OWN + "."):
        sys.modules["iceoryx2" + _name[len(_OWN) :]] = _module
