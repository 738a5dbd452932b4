/* toy.c: a plug-in with nothing in it, for plugin_test.py: it is found, looked at and never opened.
   TOY_ABI and TOY_RUNTIME_ABI are the interfaces it claims to be built for. */
#include <tutti/transport.h>

#ifndef TOY_ABI
#define TOY_ABI TUTTI_TRANSPORT_ABI
#endif
#ifndef TOY_RUNTIME_ABI
#define TOY_RUNTIME_ABI TUTTI_RUNTIME_ABI
#endif

extern const tutti_transport_ops tutti_transport_plugin;
__attribute__((visibility("default"))) const tutti_transport_ops tutti_transport_plugin = {
    .abi = TOY_ABI,
    .bytes = sizeof(tutti_transport_ops),
    .runtime_abi = TOY_RUNTIME_ABI,
    .runtime_bytes = sizeof(tutti_runtime_ops),
    .name = "toy",
    .help = TOY_HELP,
};
