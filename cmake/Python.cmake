# What `pip install .` puts into the package, python/tutti: in lib the library, its plug-ins and the
# packaged libraries that these and the command need, in bin the command, in share the data sets
# that it finds. So who installs the wheel needs neither a compiler nor packages of the system. Not
# MPI and SimGrid: those must be the machine's own. Nor what every Linux has (libstdc++, zlib,
# libudev): an MPI may need a newer one than ours. A wheel has no symbolic links, hence one file a
# library, with its soname.
set(plugins "")
foreach(name sim mpi mpi_openmpi mpi_mpich)
  if(TARGET tutti_transport_${name})
    list(APPEND plugins tutti_transport_${name})
  endif()
endforeach()
set_target_properties(tutti_shared PROPERTIES VERSION ${TUTTI_ABI})
set_target_properties(tutti_shared ${plugins} PROPERTIES INSTALL_RPATH "$ORIGIN")
# The old kind of path (DT_RPATH) holds for what a library needs in turn, too, as oneDNN libOpenCL
# and LAPACKE libblas.
set_target_properties(tutti PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
foreach(target tutti tutti_shared)
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endforeach()
add_custom_target(python_package DEPENDS tutti_shared tutti ${plugins})
install(TARGETS tutti_shared ${plugins} LIBRARY DESTINATION tutti/lib NAMELINK_SKIP COMPONENT python)
install(TARGETS tutti RUNTIME DESTINATION tutti/bin COMPONENT python)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/data/mnist ${PROJECT_SOURCE_DIR}/data/moby-dick
  DESTINATION tutti/share/tutti/data COMPONENT python)

# tools/wheel leaves that to auditwheel.
option(TUTTI_BUNDLE "put the libraries that the package needs into it" ON)
if(TUTTI_BUNDLE)
  install(CODE [[
    file(GET_RUNTIME_DEPENDENCIES EXECUTABLES $<TARGET_FILE:tutti> LIBRARIES $<TARGET_FILE:tutti_shared>
      RESOLVED_DEPENDENCIES_VAR found
      PRE_INCLUDE_REGEXES
        "^lib(jansson|yaml|xxhash|hwloc|sodium|lapacke?|tmglib|blas|openblas|gfortran|quadmath|dnnl|gomp|OpenCL|uring|png16|turbojpeg)[.-]"
      PRE_EXCLUDE_REGEXES ".")
    foreach(path IN LISTS found)
      get_filename_component(soname ${path} NAME)
      file(REAL_PATH ${path} path)
      file(COPY_FILE ${path} ${CMAKE_INSTALL_PREFIX}/tutti/lib/${soname})
    endforeach()
  ]] COMPONENT python)
endif()
# Their licences ask that they come along. Debian's packages have them, and point to texts of the
# GPL, the LGPL and others, which a target need not have.
set(texts "")
foreach(package libjansson-dev libyaml-dev libxxhash-dev libhwloc-dev libsodium-dev liblapacke libblas3
    libgfortran5 libdnnl-dev libgomp1 ocl-icd-libopencl1 liburing-dev libpng-dev libturbojpeg0-dev)
  set(licence ${CMAKE_SYSROOT}/usr/share/doc/${package}/copyright)
  install(FILES ${licence} DESTINATION tutti/lib/licences RENAME ${package}.txt COMPONENT python OPTIONAL)
  if(EXISTS ${licence})
    file(STRINGS ${licence} lines REGEX "common-licenses/")
    string(REGEX MATCHALL "common-licenses/[A-Za-z]+[0-9]*(-[0-9.]*[0-9])?" found "${lines}")
    list(APPEND texts ${found})
  endif()
endforeach()
list(REMOVE_DUPLICATES texts)
foreach(text IN LISTS texts)
  file(REAL_PATH /usr/share/${text} path) # GPL is a link to GPL-3
  get_filename_component(name ${text} NAME)
  install(FILES ${path} DESTINATION tutti/lib/licences/common-licenses RENAME ${name} COMPONENT python OPTIONAL)
endforeach()
