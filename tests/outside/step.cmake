# step(COMMAND ...): runs it, stops with its output where it fails, and leaves that output in `out`.
function(step)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    string(JOIN " " command ${ARGV})
    message(FATAL_ERROR "${command} failed:\n${out}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

# pkg_config_without_hdf5(FOLDER): what pkg-config needs to know in it, all but HDF5. For PKG_CONFIG_LIBDIR.
function(pkg_config_without_hdf5 into)
  find_program(PKG_CONFIG pkg-config REQUIRED)
  foreach(module libxxhash sentencepiece icu-i18n icu-uc)
    step(${PKG_CONFIG} --variable=pcfiledir ${module})
    string(STRIP "${out}" folder)
    file(COPY ${folder}/${module}.pc DESTINATION ${into})
  endforeach()
endfunction()
