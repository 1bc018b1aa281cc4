# Read by CMake after each `project()` of llama.cpp's build (.cargo/config.toml).
#
# AMX's `_tile_loadconfig` reads 64 bytes, and GCC's header says 8: dead store elimination drops the rest of the
# configuration, and the first prompt on a processor with AMX ends in an illegal instruction (docs/decisions/0039).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-dse>)
endif()
