"""Names the wheel for what it holds: no compiled module, so that any Python 3 will do, and perhaps
the library, which is for one platform (scripts/build-wheel.sh says which)."""

import os

from setuptools import Distribution, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

PLATFORM = os.environ.get("GINNEL_WHEEL_PLATFORM")


class Bound(Distribution):
    """Is it bound to a platform? As one with a compiled module is, which this has not."""

    def has_ext_modules(self):
        return PLATFORM is not None


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", PLATFORM or "any"


setup(distclass=Bound, cmdclass={"bdist_wheel": Wheel})
