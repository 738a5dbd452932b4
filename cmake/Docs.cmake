# The pages that are made and not committed, in docs/ of the build: installed beside those of docs/,
# and read by `make site`. Without Python there are none.
find_package(Python3 COMPONENTS Interpreter)
if(NOT Python3_Interpreter_FOUND)
  return()
endif()
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/tutti/*.h ${PROJECT_SOURCE_DIR}/bench/results/*
  ${PROJECT_SOURCE_DIR}/bench/*.py ${PROJECT_SOURCE_DIR}/tools/*-doc)
set(made ${PROJECT_BINARY_DIR}/docs)
add_custom_command(OUTPUT ${made}/LEDGER.md
  COMMAND ${PROJECT_SOURCE_DIR}/tools/pages $<TARGET_FILE:tutti> ${made}
  DEPENDS tutti ${sources} ${PROJECT_SOURCE_DIR}/tools/pages ${PROJECT_SOURCE_DIR}/bench/bounds
  ${PROJECT_SOURCE_DIR}/bench/shelf
  COMMENT "Writing the pages of docs/" VERBATIM)
add_custom_target(docs ALL DEPENDS ${made}/LEDGER.md)
install(DIRECTORY ${made}/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
