/* doctor_python.c: what `tutti doctor` asks Python: its version, PyTorch, the cards that PyTorch
   has, and Tutti's package. Python answers in a child, a line of JSON a finding, so that one that
   hangs or crashes hides nothing that it has said before. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor_internal.h"

/* argv[1]: the version of this command. */
static const char script[] =
    "import json, os, re, sys\n"
    "def say(name, state, found, mend=''):\n"
    "    print(json.dumps(dict(name=name, state=state, found=found, mend=mend)), flush=True)\n"
    "def why(e):\n"
    "    return ' '.join((type(e).__name__ + ': ' + str(e)).split())[:300]\n"
    "say('Python', 'works', '%s, %s' % (sys.version.split()[0], sys.executable))\n"
    "def torch_of():\n"
    "    try:\n"
    "        import torch\n"
    "    except BaseException as e:\n"
    "        if isinstance(e, ModuleNotFoundError) and e.name == 'torch':\n"
    "            say('PyTorch', 'absent', 'this Python has no module torch',\n"
    "                'pip install torch, or name another with --python; the command trains without "
    "it')\n"
    "        else:\n"
    "            say('PyTorch', 'fails', 'import torch: ' + why(e), 'install torch again')\n"
    "        return None\n"
    "    v = torch.version\n"
    "    built = 'CUDA ' + v.cuda if v.cuda else 'ROCm ' + v.hip if getattr(v, 'hip', None) else "
    "\\\n"
    "        'XPU ' + str(v.xpu) if getattr(v, 'xpu', None) else 'CPUs'\n"
    "    threads = torch.get_num_threads()\n"
    "    found = '%s, built for %s, %d threads' % (torch.__version__, built, threads)\n"
    "    release = re.match(r'v?(?:[0-9]+!)?([0-9]+)(?:[.]([0-9]+))?', str(torch.__version__))\n"
    "    if release and (int(release[1]), int(release[2] or 0)) < (2, 10):\n"
    "        say('PyTorch', 'limited', found + '; tutti.torch needs 2.10 or newer',\n"
    "            \"pip install --upgrade 'torch>=2.10'\")\n"
    "    else:\n"
    "        say('PyTorch', 'works', found)\n"
    "    return torch\n"
    "def backends(torch):\n"
    "    d = torch.distributed\n"
    "    if not d.is_available():\n"
    "        say('torch.distributed', 'absent', 'this build of PyTorch has none',\n"
    "            'another build of torch; tutti.torch.prepare needs none')\n"
    "        return\n"
    "    have = [n for n in ('gloo', 'nccl', 'mpi', 'ucc', 'xccl') if getattr(d, 'is_%s_available' "
    "% n, bool)()]\n"
    "    say('torch.distributed', 'works', 'backends: ' + (', '.join(have) or 'none'))\n"
    "def cards(torch):\n"
    "    if torch.cuda.is_available():\n"
    "        for k in range(min(torch.cuda.device_count(), 8)):\n"
    "            p = torch.cuda.get_device_properties(k)\n"
    "            kind = getattr(p, 'gcnArchName', '') if getattr(torch.version, 'hip', None) else "
    "\\\n"
    "                'sm_%d%d' % (p.major, p.minor)\n"
    "            text = 'cuda:%d is %s, %s, %.0f GiB' % (k, p.name, kind, p.total_memory / 2**30)\n"
    "            try:\n"
    "                torch.ones(2, device='cuda:%d' % k).sum().item()\n"
    "            except Exception as e:\n"
    "                say('card', 'limited', text + '; it computes nothing: ' + why(e),\n"
    "                    'a driver and a build of torch that fit each other and the card')\n"
    "            else:\n"
    "                say('card', 'works', text)\n"
    "        return\n"
    "    a = getattr(torch, 'accelerator', None)\n"
    "    if a is not None and a.is_available():\n"
    "        say('card', 'works', '%d of %s' % (a.device_count(), a.current_accelerator()))\n"
    "    elif any(map(os.path.exists, ('/dev/nvidiactl', '/dev/kfd', '/dev/dxg'))):\n"
    "        say('card', 'limited', 'there is a driver, and this PyTorch sees no card',\n"
    "            'a build of torch for the card (pytorch.org), and CUDA_VISIBLE_DEVICES unset')\n"
    "    else:\n"
    "        say('card', 'absent', 'PyTorch sees none; it computes on the cores')\n"
    "def package():\n"
    "    try:\n"
    "        import tutti\n"
    "    except BaseException as e:\n"
    "        if isinstance(e, ModuleNotFoundError) and e.name == 'tutti':\n"
    "            say('package tutti', 'absent', 'this Python has no module tutti',\n"
    "                \"pip install . in Tutti's folder\")\n"
    "        else:\n"
    "            say('package tutti', 'fails', 'import tutti: ' + why(e),\n"
    "                'install the command and the package together')\n"
    "        return\n"
    "    text = '%s, %s' % (tutti.__version__, os.path.dirname(tutti.__file__))\n"
    "    if tutti.__version__ == sys.argv[1]:\n"
    "        say('package tutti', 'works', text)\n"
    "    else:\n"
    "        say('package tutti', 'limited', text + '; the command is ' + sys.argv[1],\n"
    "            'install the command and the package together')\n"
    "torch = torch_of()\n"
    "if torch:\n"
    "    backends(torch)\n"
    "    cards(torch)\n"
    "package()\n";

static void run_python(void *user)
{
    const char *const words[] = { user, "-c", script, tutti_version(), NULL };

    execvp(user, (char *const *)(uintptr_t)words); /* exec changes none of them */
    perror(user);
    _exit(127);
}

/* Takes a line of the answer, which is changed. Returns the finding's name; NULL: the line is
   none. */
static const char *take(tutti_findings *f, const char *line)
{
    json_t *o = json_loads(line, 0, NULL);
    const char *name, *state, *found, *mend;
    const char *taken = NULL;

    if (json_unpack(o, "{s:s, s:s, s:s, s:s}", "name", &name, "state", &state, "found", &found,
                    "mend", &mend) == 0)
        for (int s = 0; s < FINDING_STATES; s++)
            if (strcmp(state, tutti_finding_state_name((tutti_finding_state)s)) == 0) {
                tutti_finding_add(f, name, (tutti_finding_state)s, mend, "%s", found);
                taken = f->list[f->n - 1].name;
            }
    json_decref(o);
    return taken;
}

static void no_python(tutti_findings *f, const char *python, bool named)
{
    tutti_finding_add(
        f, "Python", named ? FINDING_FAILS : FINDING_ABSENT,
        named ? "name one that is there" : "install python3, or name one with --python",
        "there is no '%s'%s", python, named ? "" : " in $PATH, so nothing is known of PyTorch");
}

static void ended_badly(tutti_findings *f, const tutti_doctor_answer *a, const char *after,
                        const char *said, const char *python, double limit)
{
    char mend[400];

    snprintf(mend, sizeof mend, "see what `%.200s -c 'import torch, tutti'` does%s", python,
             a->late ? "; where it only takes its time, --limit gives it more" : "");
    if (a->late)
        tutti_finding_add(f, "Python", FINDING_FAILS, mend,
                          "%s has not ended within %.12g s; its last answer was of %s", python,
                          limit, after);
    else
        tutti_finding_add(
            f, "Python", FINDING_FAILS, mend, "%s ended with %s %d after it answered of %s%s%s",
            python, a->code > 128 ? "signal" : "exit code", a->code > 128 ? a->code - 128 : a->code,
            after, said[0] != 0 ? ": " : "", said);
}

void tutti_doctor_python(tutti_findings *f, tutti_runtime *rt, const char *python, int64_t limit_ns)
{
    const char *const home = tutti_variable(environ, "VIRTUAL_ENV"), *after = "nothing", *said = "";
    const bool in_home = python[0] == 0 && home != NULL && home[0] != 0;
    static tutti_doctor_answer a;
    char path[4096], *rest = NULL;

    snprintf(path, sizeof path, "%s%s", in_home ? home : python[0] != 0 ? python : "python3",
             in_home ? "/bin/python" : "");
    tutti_doctor_ask(rt, limit_ns, run_python, path, &a);
    if (a.code == 127) {
        no_python(f, path, in_home || python[0] != 0);
        return;
    }
    for (char *line = strtok_r(a.text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *name = take(f, line);
        if (name != NULL)
            after = name;
        else
            said = line;
    }
    if (a.late || a.code != 0)
        ended_badly(f, &a, after, said, path, (double)limit_ns * 1e-9);
}
