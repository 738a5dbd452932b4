# For toolchain files, which say TUTTI_ARCH and CMAKE_SYSROOT: gcc, or Debian's cross compiler, with
# the headers and libraries of that root alone.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${TUTTI_ARCH})
set(CMAKE_C_COMPILER ${TUTTI_ARCH}-linux-gnu-gcc)
# Else gcc looks for the C library, and for what programs begin with, where its own is.
set(CMAKE_C_FLAGS_INIT -B${CMAKE_SYSROOT}/usr/lib/${TUTTI_ARCH}-linux-gnu)
set(CMAKE_LIBRARY_ARCHITECTURE ${TUTTI_ARCH}-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
  ${CMAKE_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
