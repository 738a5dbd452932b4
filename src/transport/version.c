/* version.c: checks the version of a transport's table (tutti_transport_check). Uses no other file,
   so that a plug-in that opens plug-ins (mpi/choose.c) can have its own copy. */
#include "tutti/transport.h"
#include "registry.h"

/* The number of an interface, and the bytes of its table. */
typedef struct version {
    uint32_t abi;
    size_t bytes;
} version;

static tutti_status check_abi(const char *whose, const char *interface, version its, version ours,
                              tutti_error *err)
{
    const uint32_t abi = its.abi, here = ours.abi;
    const size_t bytes = its.bytes, bytes_here = ours.bytes;

    if (abi == here && bytes == bytes_here)
        return TUTTI_OK;
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0,
        "%.260s was built for %s interface %lu (%lu bytes), this library offers %lu (%zu bytes); "
        "install both from the same version",
        whose, interface, (unsigned long)abi, (unsigned long)bytes, (unsigned long)here,
        bytes_here);
}

tutti_status tutti_transport_check(const tutti_transport_ops *ops, const char *whose,
                                   tutti_error *err)
{
    /* first: it determines the positions of the others */
    TUTTI_TRY(check_abi(whose, "transport", (version){ ops->abi, ops->bytes },
                        (version){ TUTTI_TRANSPORT_ABI, sizeof *ops }, err));
    return check_abi(whose, "runtime", (version){ ops->runtime_abi, ops->runtime_bytes },
                     (version){ TUTTI_RUNTIME_ABI, sizeof(tutti_runtime_ops) }, err);
}

tutti_status tutti_runtime_check(const tutti_runtime *rt, const char *whose, tutti_error *err)
{
    return check_abi(whose, "runtime", (version){ rt->ops->abi, rt->ops->bytes },
                     (version){ TUTTI_RUNTIME_ABI, sizeof *rt->ops }, err);
}
