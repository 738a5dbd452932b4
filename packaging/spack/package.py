# A package of Spack. It has no address to fetch from: from a clone,
#     spack repo create tutti-repo tutti
#     mkdir -p tutti-repo/packages/tutti && cp packaging/spack/package.py tutti-repo/packages/tutti
#     spack repo add tutti-repo && spack dev-build tutti@0.4.0
from spack.package import *


class Tutti(CMakePackage):
    """Distributed training of neural networks: published methods on one engine, for slow networks, unequal
    computers, lost workers and little memory. A command, a C library, and with +python a package for Python."""

    license("Apache-2.0")
    version("0.4.0")

    variant("python", default=True, description="the Python package")
    variant("sim", default=False, description="the transport that simulates a cluster")
    variant("mpi", default=False, description="the transport over Open MPI or MPICH")
    variant("uring", default=True, description="tiers on disks by io_uring; threads without it")
    variant("pictures", default=True, description="PNG and JPEG files as data")

    depends_on("c", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.10:", type="build")
    depends_on("jansson")
    depends_on("libyaml")
    depends_on("xxhash")
    depends_on("hwloc")
    depends_on("libsodium")
    depends_on("zlib-api")
    depends_on("onednn")
    depends_on("netlib-lapack+lapacke")
    depends_on("simgrid", when="+sim")
    depends_on("mpi", when="+mpi")
    depends_on("liburing@2.2:", when="+uring")
    depends_on("libpng@1.6:", when="+pictures")
    depends_on("libjpeg-turbo@2.1:", when="+pictures")
    extends("python@3.10:", when="+python")

    conflicts("platform=darwin", msg="Tutti needs Linux")
    conflicts("platform=windows", msg="Tutti needs Linux")
    generator("ninja")

    def cmake_args(self):
        return [self.define("TUTTI_TESTS", False), self.define("CMAKE_INSTALL_LIBDIR", "lib")]

    @run_after("install", when="+python")
    def install_python(self):
        """Plain Python; setup_run_environment() says where the library is."""
        install_tree(join_path(self.stage.source_path, "python/tutti"), join_path(python_platlib, "tutti"))

    def setup_run_environment(self, env):
        if self.spec.satisfies("+python"):
            version = self.spec.version.up_to(2 if self.spec.satisfies("@:0") else 1)
            env.set("TUTTI_LIBRARY", join_path(self.prefix.lib, f"libtutti.so.{version}"))

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def trains(self):
        Executable(self.prefix.bin.tutti)("train", "--model", "mlp(hidden=16)", "-n", "2", "--steps", "20", "--quiet")
