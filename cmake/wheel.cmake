# Toolchain of tools/wheel: for x86_64 or aarch64 (TUTTI_ARCH), with the headers and libraries that
# tools/wheel-root unpacks.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TUTTI_ARCH TUTTI_WHEEL_ROOT)
set(CMAKE_SYSROOT ${TUTTI_WHEEL_ROOT})
include(${CMAKE_CURRENT_LIST_DIR}/sysroot.cmake)
