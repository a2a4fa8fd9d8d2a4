# step(COMMAND ...): runs a command and sets `out` to its output. Stops with the output if the command fails or CMake
# warns.
function(step)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    string(JOIN " " command ${ARGV})
    message(FATAL_ERROR "${command} failed:\n${out}")
  endif()
  if(out MATCHES "CMake [A-Za-z ]*Warning")
    string(JOIN " " command ${ARGV})
    message(FATAL_ERROR "${command} warns:\n${out}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

# pkg_config_without_hdf5(FOLDER): copies to FOLDER the files that pkg-config needs, except HDF5's. For
# PKG_CONFIG_LIBDIR.
function(pkg_config_without_hdf5 into)
  find_program(PKG_CONFIG pkg-config REQUIRED)
  foreach(module libxxhash sentencepiece icu-i18n icu-uc libpcre2-8)
    step(${PKG_CONFIG} --variable=pcfiledir ${module})
    string(STRIP "${out}" folder)
    file(COPY ${folder}/${module}.pc DESTINATION ${into})
  endforeach()
endfunction()
