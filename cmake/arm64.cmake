# Toolchain: arm64 from x86-64, with Debian's cross compiler. Headers and libraries are those of the
# root that `tools/setup --arm64` unpacks; programs, and so the tests, run under QEMU there.
set(TUTTI_ARCH aarch64)
get_filename_component(CMAKE_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-root ABSOLUTE)
include(${CMAKE_CURRENT_LIST_DIR}/sysroot.cmake)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${CMAKE_SYSROOT})
