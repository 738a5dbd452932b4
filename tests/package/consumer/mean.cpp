// mean.cpp: a C++17 program on an installed Tutti. Three workers average a vector, and each passes
// a number on to the next through ports. Prints what came out and the versions of header and
// library. Ends with 1 if a value is wrong.
#include <cstdio>
#include <string>
#include <vector>
#include <tutti/tutti.h>

static tutti_status worker(tutti_world *world, void *arg, tutti_error *err)
{
    const int rank = tutti_world_rank(world), size = tutti_world_size(world);
    std::vector<float> x(1000, static_cast<float>(rank));
    tutti_group all = tutti_group_workers(world, 1);
    const tutti_port port = tutti_port_of("mean", 0, 0);
    tutti_request sent = {};
    tutti_request *const requests[] = { &sent };
    tutti_header note = {}, got = {};

    TUTTI_TRY(tutti_allreduce(&all, TUTTI_MEAN, tutti_f32(nullptr, x.data(), x.size()), err));
    for (const float value : x)
        if (value != 1.0f)
            return tutti_fail(err, TUTTI_ERR_NUMBER, 0, "the mean of 0, 1 and 2 is %g on worker %d",
                              static_cast<double>(value), rank);
    note.a = 100 + rank;
    TUTTI_TRY(tutti_post_send(world, &sent, (rank + 1) % size, port, &note, tutti_nothing(), err));
    TUTTI_TRY(tutti_recv(world, TUTTI_ANY, port, &got, tutti_nothing(), INT64_MAX, err));
    TUTTI_TRY(tutti_wait_some(world, requests, 1, 1, INT64_MAX, nullptr, err));
    if (!tutti_request_done(&sent) || got.a != 100 + (rank + size - 1) % size)
        return tutti_fail(err, TUTTI_ERR_NUMBER, 0, "worker %d got %lld", rank, static_cast<long long>(got.a));
    if (rank == 0)
        *static_cast<float *>(arg) = x[0];
    return TUTTI_OK;
}

int main(int argc, char **argv)
{
    const std::string transport = argc > 1 ? argv[1] : "shm";
    tutti_error err;
    float mean = -1;

    if (tutti_world_run(transport.c_str(), 3, worker, &mean, &err) != TUTTI_OK) {
        std::fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    std::printf("mean %g; header %d.%d.%d, library %s\n", static_cast<double>(mean), TUTTI_VERSION_MAJOR,
                TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH, tutti_version());
    return mean == 1.0f ? 0 : 1;
}
