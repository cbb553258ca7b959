# Copyright the Holdfast authors.
#
# SPDX-License-Identifier: Apache-2.0

from spack.package import *


class Holdfast(MakefilePackage):
    """Checkpoints and restarts of MPI programs that compute on GPUs, in Go, C, C++, Fortran and Python.

    Libraries and tool need no MPI and no GPU library to be built: they are the same for all.
    """

    homepage = "https://github.com/holdfast-hpc/holdfast"
    git = "https://github.com/holdfast-hpc/holdfast.git"

    license("Apache-2.0")

    version("main", branch="main")

    variant("fortran", default=True, description="the Fortran module for Spack's compiler")
    variant("python", default=False, description="the package for Python")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("go@1.26:", type="build")
    depends_on("gmake", type="build")
    extends("python@3.8:", when="+python")

    conflicts("platform=darwin", msg="Holdfast needs Linux")
    conflicts("platform=windows", msg="Holdfast needs Linux")

    def setup_build_environment(self, env):
        env.set("GOPATH", join_path(self.stage.path, "go"))
        env.append_flags("GOFLAGS", "-modcacherw")

    @property
    def directories(self):
        args = [f"PREFIX={self.prefix}", f"CC={spack_cc}", f"CXX={spack_cxx}"]
        args.append(f"FC={spack_fc}" if self.spec.satisfies("+fortran") else "FC=")
        if self.spec.satisfies("+python"):
            args.append(f"PYTHONDIR={python_platlib}")
        return args

    def build(self, spec, prefix):
        make("lib", "veloc", *self.directories)

    def install(self, spec, prefix):
        make("install", *self.directories)

    def setup_run_environment(self, env):
        env.set("HOLDFAST_BIN", self.prefix.bin.holdfast)

    def setup_dependent_build_environment(self, env, dependent_spec):
        env.prepend_path("PKG_CONFIG_PATH", self.prefix.lib.pkgconfig)
