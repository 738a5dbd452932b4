# What `pip install .` puts into the package, python/tutti/lib: the library, its plug-ins, and the
# packaged libraries that the library needs, so that who installs the wheel needs neither a compiler
# nor packages of the system. Not MPI and SimGrid: those must be the machine's own. A wheel has no
# symbolic links, hence one file a library, with its soname.
set(plugins "")
foreach(name sim mpi mpi_openmpi mpi_mpich)
  if(TARGET tutti_transport_${name})
    list(APPEND plugins tutti_transport_${name})
  endif()
endforeach()
set_target_properties(tutti_shared PROPERTIES VERSION ${TUTTI_ABI})
set_target_properties(tutti_shared ${plugins} PROPERTIES INSTALL_RPATH "$ORIGIN")
add_custom_target(python_library DEPENDS tutti_shared ${plugins})
install(TARGETS tutti_shared ${plugins} LIBRARY DESTINATION tutti/lib NAMELINK_SKIP COMPONENT python)

install(CODE [[
  file(GET_RUNTIME_DEPENDENCIES LIBRARIES $<TARGET_FILE:tutti_shared> RESOLVED_DEPENDENCIES_VAR found
    PRE_INCLUDE_REGEXES "^lib(jansson|yaml|xxhash|hwloc|sodium)[.-]" PRE_EXCLUDE_REGEXES ".")
  foreach(path IN LISTS found)
    get_filename_component(soname ${path} NAME)
    file(REAL_PATH ${path} path)
    file(COPY_FILE ${path} ${CMAKE_INSTALL_PREFIX}/tutti/lib/${soname})
  endforeach()
]] COMPONENT python)
# Their licences ask that they come along. Debian's packages have them.
foreach(package libjansson-dev libyaml-dev libxxhash-dev libhwloc-dev libsodium-dev)
  install(FILES /usr/share/doc/${package}/copyright DESTINATION tutti/lib/licences RENAME ${package}.txt
    COMPONENT python OPTIONAL)
endforeach()
