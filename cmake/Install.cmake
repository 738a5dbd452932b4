# What `cmake --install` puts where, and what other programs need to find it: symbol versions,
# pkg-config, a CMake package. Every path in an installed file is relative to that file or to the
# running command, so that DESTDIR, a prefix given late and a tree that was moved all work.
include(CMakePackageConfigHelpers)

# The public headers of libtutti. Headers of modules that only other modules and the command use are
# in src/.
set(TUTTI_HEADERS base transport comm launch codec files tutti method method/steps method/gossip method/server
  method/pipeline)
list(TRANSFORM TUTTI_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/tutti/)
list(TRANSFORM TUTTI_HEADERS APPEND .h)

# Until 1.0 a new minor version may change the interface, so the soname and the version of the
# symbols have it in them.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(TUTTI_ABI 0.${PROJECT_VERSION_MINOR})
else()
  set(TUTTI_ABI ${PROJECT_VERSION_MAJOR})
endif()

# Exported is what those headers, and that of the Python package, name outside of comments, and
# nothing else. Names that are no symbols (types, inline functions) do no harm.
set(exports "")
set(exporting ${TUTTI_HEADERS} ${PROJECT_SOURCE_DIR}/src/api/python.h)
foreach(header IN LISTS exporting)
  file(READ ${header} text)
  string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" "" text "${text}")
  string(REGEX MATCHALL "tutti_[a-z0-9_]+" names "${text}")
  list(APPEND exports ${names})
endforeach()
list(REMOVE_DUPLICATES exports)
list(SORT exports)
list(JOIN exports "; " exports)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/libtutti.map
  CONTENT "TUTTI_@TUTTI_ABI@ { global: @exports@; local: *; };\n" @ONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${exporting})
target_link_options(tutti_shared PRIVATE -Wl,--version-script=${PROJECT_BINARY_DIR}/libtutti.map)
set_target_properties(tutti_shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${TUTTI_ABI} EXPORT_NAME tutti
  LINK_DEPENDS ${PROJECT_BINARY_DIR}/libtutti.map)

# What libtutti.a needs besides. Plain names: an installed file must not know where this machine
# keeps them.
set(private ${jansson_LIBRARIES} ${yaml_LIBRARIES} ${xxhash_LIBRARIES} ${hwloc_LIBRARIES} ${sodium_LIBRARIES}
  ${liburing_LIBRARIES} lapacke
  pthread ${CMAKE_DL_LIBS} m)
list(REMOVE_DUPLICATES private)
target_link_libraries(tutti_static INTERFACE ${private})

# Where one folder of the install is, seen from another.
file(RELATIVE_PATH TUTTI_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" TUTTI_PC_TO_PREFIX "${TUTTI_PC_TO_PREFIX}")
foreach(dir LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE ${CMAKE_INSTALL_${dir}})
    set(TUTTI_PC_${dir} ${CMAKE_INSTALL_${dir}})
  else()
    set(TUTTI_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
list(TRANSFORM private PREPEND -l OUTPUT_VARIABLE TUTTI_PC_PRIVATE)
list(JOIN TUTTI_PC_PRIVATE " " TUTTI_PC_PRIVATE)
configure_file(${CMAKE_CURRENT_LIST_DIR}/tutti.pc.in ${PROJECT_BINARY_DIR}/tutti.pc @ONLY)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tutti-config.cmake.in ${PROJECT_BINARY_DIR}/tutti-config.cmake
  INSTALL_DESTINATION ${package})
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
else()
  set(compatibility SameMajorVersion)
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tutti-config-version.cmake COMPATIBILITY ${compatibility})

install(TARGETS tutti RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS tutti_shared tutti_static EXPORT tutti-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tutti-targets NAMESPACE tutti:: DESTINATION ${package})
install(FILES ${PROJECT_BINARY_DIR}/tutti-config.cmake ${PROJECT_BINARY_DIR}/tutti-config-version.cmake
  DESTINATION ${package})
install(FILES ${PROJECT_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/data/mnist ${PROJECT_SOURCE_DIR}/data/moby-dick
  DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/data)
# For `tutti bench NAME --with-peers`: scripts and sources, built when they are first needed.
# Without those for test networks, which are of the source tree only.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/bench/peers ${PROJECT_SOURCE_DIR}/bench/limits
  DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/bench USE_SOURCE_PERMISSIONS
  PATTERN __pycache__ EXCLUDE PATTERN lab-rsh EXCLUDE PATTERN network EXCLUDE)
install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
install(FILES ${PROJECT_BINARY_DIR}/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  RENAME tutti)
install(FILES ${PROJECT_BINARY_DIR}/completion.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
  RENAME _tutti)
install(FILES ${PROJECT_SOURCE_DIR}/data/README.md ${PROJECT_SOURCE_DIR}/LICENSE
  DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti)
install(FILES ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
