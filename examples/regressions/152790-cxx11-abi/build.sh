# Makes extension.so with the old C++ ABI. An empty library stands in for PyTorch's, to be linked with and not loaded.
set -e
g++ -shared -Wl,-soname,libc10.so -x c++ /dev/null -o libc10.so
g++ -std=c++17 -shared -fPIC -O1 -I../../../csrc -D_GLIBCXX_USE_CXX11_ABI=0 extension.cpp \
    -Wl,--no-as-needed -L. -lc10 -o extension.so
rm libc10.so
