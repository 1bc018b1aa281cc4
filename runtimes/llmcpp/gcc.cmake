# Read by CMake after each `project()` of llama.cpp's build (.cargo/config.toml).
#
# AMX's `_tile_loadconfig` reads 64 bytes, and GCC's header declares 8: dead store elimination drops the rest of the
# configuration, and the first prompt on a processor with AMX ends in an illegal instruction (docs/decisions/0039).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-dse>)
endif()

# A debug build runs on the machine that builds it, so it gets the one CPU variant that this machine would choose. Cargo sets PROFILE to
# `release` for everything that may be packaged, which gets all variants (docs/decisions/0002).
if("$ENV{PROFILE}" STREQUAL "debug" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo processor_flags REGEX "^flags" LIMIT_COUNT 1)
    set(wanted SSE42=sse4_2 AVX=avx F16C=f16c FMA=fma AVX2=avx2 BMI2=bmi2 AVX512=avx512f AVX512_VBMI=avx512vbmi
        AVX512_VNNI=avx512_vnni AVX512_BF16=avx512_bf16 AMX_TILE=amx_tile AMX_INT8=amx_int8)
    if(NOT processor_flags MATCHES " avx512f( |$)")
        list(APPEND wanted AVX_VNNI=avx_vnni)
    endif()
    set(GGML_CPU_ALL_VARIANTS OFF CACHE BOOL "one variant for this machine" FORCE)
    foreach(pair IN LISTS wanted)
        string(REPLACE "=" ";" pair ${pair})
        list(GET pair 0 option)
        list(GET pair 1 flag)
        if(processor_flags MATCHES " ${flag}( |$)")
            set(GGML_${option} ON CACHE BOOL "this processor has it" FORCE)
        else()
            set(GGML_${option} OFF CACHE BOOL "this processor lacks it" FORCE)
        endif()
    endforeach()
endif()

# `llama-common` is built for `json_schema_to_grammar` alone; the rest of it (argument parsing, chat parsers, HTTP) takes a third of the
# time with optimization and is never called.
if("$ENV{PROFILE}" STREQUAL "debug" AND NOT island_deferred)
    set(island_deferred ON)
    function(island_quick_common)
        foreach(target llama-common cpp-httplib)
            if(TARGET ${target})
                target_compile_options(${target} PRIVATE -O0)
            endif()
        endforeach()
    endfunction()
    cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL island_quick_common)
endif()
