# Both MPIs can be installed side by side, and each is wanted for itself, so FindMPI, which chooses
# one, is of no use here. Compiler wrappers add flags that are not ours; headers and the library are
# all it takes. Gives tutti_mpi_openmpi_library and tutti_mpi_mpich_library, as far as they are
# there.
foreach(pair "openmpi;ompi-c;mpi;Open MPI;libopenmpi-dev" "mpich;mpich;mpich;MPICH;libmpich-dev")
  list(GET pair 0 kind)
  list(GET pair 1 module)
  list(GET pair 2 library)
  list(GET pair 3 title)
  list(GET pair 4 package)
  string(TOUPPER TUTTI_MPI_${kind}_LIBRARY variable)
  pkg_check_modules(mpi_${kind} QUIET ${module})
  if(mpi_${kind}_FOUND)
    find_library(${variable} ${library} HINTS ${mpi_${kind}_LIBRARY_DIRS})
    mark_as_advanced(${variable})
  endif()
  if(mpi_${kind}_FOUND AND ${variable})
    add_library(tutti_mpi_${kind}_library INTERFACE)
    target_include_directories(tutti_mpi_${kind}_library SYSTEM INTERFACE ${mpi_${kind}_INCLUDE_DIRS})
    target_link_libraries(tutti_mpi_${kind}_library INTERFACE ${${variable}})
  else()
    tutti_left_out("${title} not found: the transport 'mpi' is built without it (Debian: ${package})")
  endif()
endforeach()
