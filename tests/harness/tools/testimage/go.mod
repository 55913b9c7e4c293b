module tessera.dev/tests/tools/testimage

go 1.24
