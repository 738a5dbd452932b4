/* api.c: the engine's public interface, with the built-in methods. The engine itself is a lower
   module than the methods and knows none by name. */
#include "tutti/tutti.h"
#include "tutti/method.h"

tutti_status tutti_engine_open(tutti_engine **out, tutti_world *world, const tutti_param *params,
                               int n_params, const tutti_engine_options *options, tutti_error *err)
{
    return tutti_engine_open_from(out, world, params, n_params, options, tutti_methods, err);
}
