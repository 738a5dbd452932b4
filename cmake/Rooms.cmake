# A room is a folder of src/, a target and a prefix. Three helpers, so that adding a file is a local
# change:
#   tutti_room(base SOURCES a.c b.c [USES lower rooms] [LIBS packaged libraries] [AVX2 files]
#              [AVX512 files] [NEON files])
#   tutti_test(base/spec SOURCES spec_test.c [USES rooms] [LIBS ...] [LABELS ...] [TIMEOUT s]
#              [COST s])                                      in tests/
#   tutti_fuzz(spec SOURCES spec_fuzz.c USES rooms)           in tests/fuzz

add_library(tutti_flags INTERFACE)
target_compile_definitions(tutti_flags INTERFACE _GNU_SOURCE)
# include/: public headers, "tutti/NAME.h". src/: headers of modules for other modules, "nn/nn.h".
target_include_directories(tutti_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
# No contraction: a kernel's order of roundings is part of its contract.
target_compile_options(tutti_flags INTERFACE -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes
  -Wpointer-arith -Wwrite-strings -Wvla -Wno-missing-field-initializers -ffp-contract=off -fno-math-errno)
if(TUTTI_WERROR)
  target_compile_options(tutti_flags INTERFACE -Werror)
endif()
if(TUTTI_SANITIZE)
  target_compile_options(tutti_flags INTERFACE -fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(tutti_flags INTERFACE -fsanitize=${TUTTI_SANITIZE})
else()
  target_compile_options(tutti_flags INTERFACE -fstack-protector-strong)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(tutti_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  endif()
endif()
if(TUTTI_FUZZ)
  target_compile_options(tutti_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(TUTTI_COVERAGE)
  target_compile_options(tutti_flags INTERFACE --coverage)
  target_link_options(tutti_flags INTERFACE --coverage)
endif()

# What this build does without, or tests in part only, and why: said when it is configured (on
# stderr, which make lets through), and by tools/skipped when the tests have ended.
function(tutti_left_out sentence)
  message(NOTICE "${sentence}")
  set_property(GLOBAL APPEND_STRING PROPERTY TUTTI_LEFT_OUT "${sentence}\n")
endfunction()

set_property(GLOBAL PROPERTY TUTTI_ROOMS "")
add_custom_target(fuzz_targets) # every libFuzzer program

function(tutti_room name)
  cmake_parse_arguments(R "" "" "SOURCES;USES;LIBS;AVX2;AVX512;NEON" ${ARGN})
  get_property(below GLOBAL PROPERTY TUTTI_ROOMS)
  foreach(used IN LISTS R_USES)
    if(NOT used IN_LIST below)
      message(FATAL_ERROR "room '${name}' may not use '${used}': it does not stand below it "
        "(src/CMakeLists.txt has the order)")
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY TUTTI_ROOMS ${name})

  # of the vector levels, those of the architecture
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    list(APPEND R_SOURCES ${R_AVX2} ${R_AVX512})
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    list(APPEND R_SOURCES ${R_NEON}) # no options: every arm64 has it
  endif()
  add_library(tutti_${name}_objects OBJECT ${R_SOURCES})
  target_link_libraries(tutti_${name}_objects PUBLIC tutti_flags ${R_LIBS})
  # clang's UBSan takes a minute for a file of vectors; gcc's checks them in the preset asan
  set(unchecked $<$<BOOL:${TUTTI_FUZZ}>:-fno-sanitize=undefined>)
  if(R_AVX2)
    set_source_files_properties(${R_AVX2} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;${unchecked}")
  endif()
  if(R_AVX512)
    set_source_files_properties(${R_AVX512} PROPERTIES COMPILE_OPTIONS
      "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mf16c;-mprefer-vector-width=512;${unchecked}")
  endif()

  list(TRANSFORM R_USES PREPEND tutti_ OUTPUT_VARIABLE used_static)
  add_library(tutti_${name} STATIC $<TARGET_OBJECTS:tutti_${name}_objects>)
  target_link_libraries(tutti_${name} PUBLIC tutti_flags ${used_static} ${R_LIBS})

  # The proof of direction: a shared library with every symbol defined by the room itself and by
  # those it says it uses.
  list(TRANSFORM R_USES PREPEND tutti_closed_ OUTPUT_VARIABLE used_closed)
  add_library(tutti_closed_${name} SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:tutti_${name}_objects>)
  set_target_properties(tutti_closed_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/direction)
  target_link_libraries(tutti_closed_${name} PRIVATE tutti_flags ${used_closed} ${R_LIBS} m)
  if(NOT TUTTI_SANITIZE)
    target_link_options(tutti_closed_${name} PRIVATE -Wl,-z,defs -Wl,--as-needed)
  endif()
endfunction()

function(tutti_test name)
  cmake_parse_arguments(T "" "TIMEOUT;COST" "SOURCES;USES;LIBS;LABELS" ${ARGN})
  string(REPLACE "/" "_" target ${name}_test)
  add_executable(${target} ${T_SOURCES})
  list(TRANSFORM T_USES PREPEND tutti_)
  target_link_libraries(${target} PRIVATE tutti_flags ${T_USES} ${T_LIBS} ${CMOCKA_LIBRARY} m)
  target_include_directories(${target} PRIVATE ${CMOCKA_INCLUDE} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE
    TUTTI_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TUTTI_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${target})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}")
  # COST is about its seconds: the longest are begun first, so that none of them runs alone at the
  # end; a fresh clone has no times of its own.
  if(T_COST)
    set_tests_properties(${name} PROPERTIES COST ${T_COST})
  endif()
endfunction()

# A test that runs the inputs of tests/fuzz/corpus/NAME.txt, and 200 damaged copies of each, through
# a target's function (replay.c), and with TUTTI_FUZZ a libFuzzer program build/fuzz/tests/NAME_fuzz
# that begins with them. They are unpacked to corpus/NAME of the build, a file an input.
function(tutti_fuzz name)
  cmake_parse_arguments(F "" "" "SOURCES;USES;LIBS" ${ARGN})
  list(TRANSFORM F_USES PREPEND tutti_)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(unpacker ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus.py)
  set(inputs ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}.txt)
  set(corpus ${CMAKE_BINARY_DIR}/corpus/${name})
  add_custom_command(OUTPUT ${corpus}.unpacked DEPENDS ${unpacker} ${inputs}
    COMMAND ${Python3_EXECUTABLE} -B ${unpacker} unpack ${inputs} ${corpus}
    COMMAND ${CMAKE_COMMAND} -E touch ${corpus}.unpacked COMMENT "inputs of fuzz/${name}")
  add_custom_target(${name}_corpus DEPENDS ${corpus}.unpacked)
  set(outputs replay)
  if(TUTTI_FUZZ)
    list(APPEND outputs fuzz)
  endif()
  foreach(kind IN LISTS outputs)
    set(target ${name}_${kind})
    add_executable(${target} ${F_SOURCES})
    add_dependencies(${target} ${name}_corpus)
    if(kind STREQUAL "replay")
      target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c)
      add_test(NAME fuzz/${name} COMMAND ${target} --changed 200 ${corpus})
      set_tests_properties(fuzz/${name} PROPERTIES TIMEOUT 60)
    else()
      target_link_options(${target} PRIVATE -fsanitize=fuzzer)
      add_dependencies(fuzz_targets ${target})
    endif()
    target_link_libraries(${target} PRIVATE tutti_flags ${F_USES} ${F_LIBS} m)
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  endforeach()
endfunction()

# A program of somebody else's, for tests: one C file, the public headers, libtutti.so, nothing of
# src/.
function(tutti_client_program name source)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE tutti_shared m)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Werror)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(TUTTI_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${TUTTI_SANITIZE})
    target_link_options(${name} PRIVATE -fsanitize=${TUTTI_SANITIZE})
  endif()
endfunction()
