/* foreign_test.c: which environments say that somebody else's launcher started several ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tutti/launch.h"

static void only_several_ranks_of_a_launcher_count(void **state)
{
    static const struct { const char *environment[5]; const char *says; } cases[] = {
        { { NULL }, NULL },
        { { "PATH=/bin", "HOME=/", NULL }, NULL },
        { { "OMPI_COMM_WORLD_SIZE=4", NULL }, "OMPI_COMM_WORLD_SIZE=4 (Open MPI)" },
        { { "OMPI_COMM_WORLD_SIZE=1", NULL }, NULL },
        { { "OMPI_COMM_WORLD_SIZE=", NULL }, NULL },
        { { "OMPI_COMM_WORLD_SIZE=4x", NULL }, NULL },
        { { "OMPI_COMM_WORLD_SIZE=-4", NULL }, NULL },
        { { "OMPI_COMM_WORLD_SIZE= 4", NULL }, NULL },
        { { "OMPI_COMM_WORLD_SIZE=99999999999999999999", NULL }, NULL },
        { { "OMPI_COMM_WORLD_SIZE_X=4", NULL }, NULL },
        { { "PMI_SIZE=2", "PMI_RANK=0", NULL }, "PMI_SIZE=2 (MPICH or another with PMI)" },
        { { "PMI_SIZE=2", NULL }, NULL },
        { { "PMIX_RANK=0", "PMIX_NAMESPACE=x", NULL }, NULL },
        { { "PMIX_RANK=3", "PMIX_NAMESPACE=x", NULL }, "PMIX_RANK=3 (PMIx)" },
        { { "PMIX_RANK=3", NULL }, NULL },
        { { "SLURM_NTASKS=8", NULL }, NULL }, /* a batch script, or an allocation's shell */
        { { "SLURM_NTASKS=8", "SLURM_PROCID=0", NULL }, NULL },
        { { "SLURM_NTASKS=8", "SLURM_PROCID=0", "SLURM_STEP_ID=0", NULL }, "SLURM_NTASKS=8 (Slurm)" },
        { { "SLURM_NTASKS=1", "SLURM_PROCID=0", "SLURM_STEP_ID=0", NULL }, NULL },
        { { "WORLD_SIZE=2", "RANK=1", NULL }, "WORLD_SIZE=2 (torchrun)" },
        { { "WORLD_SIZE=2", NULL }, NULL },
        { { "WORLD_SIZE=1", "RANK=0", NULL }, NULL },
    };
    char text[100], tiny[8];

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        const char *said = tutti_launch_foreign((char *const *)(uintptr_t)cases[i].environment, text, sizeof text);
        if (cases[i].says == NULL)
            assert_null(said);
        else
            assert_string_equal(said, cases[i].says);
    }
    assert_null(tutti_launch_foreign(NULL, text, sizeof text));
    assert_string_equal(tutti_launch_foreign((char *const *)(uintptr_t)cases[2].environment, tiny, sizeof tiny), "OMPI_CO");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(only_several_ranks_of_a_launcher_count) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
