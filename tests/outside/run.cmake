# Installs the build into a prefix of its own, then configures, builds and runs tests/outside with nothing else in sight.
#   cmake -DBUILD=... -DSOURCE=... -DWORK=... -DGENERATOR=... -DCXX=... -P run.cmake
function(step)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    string(JOIN " " command ${ARGV})
    message(FATAL_ERROR "${command} failed:\n${out}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
step(${CMAKE_COMMAND} -S ${SOURCE}/tests/outside -B ${WORK}/build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${WORK}/prefix
     -DCMAKE_CXX_FLAGS=${FLAGS})
step(${CMAKE_COMMAND} --build ${WORK}/build)
step(${WORK}/build/your_program)
message(STATUS "${out}")
