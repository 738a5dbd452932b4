/* python.h: what libtutti has for the Python package alone, which finds it by name
   (python/tutti/_library.py): exported, and no part of the public interface. Their names begin with
   tutti_python_. */
#ifndef TUTTI_API_PYTHON_H
#define TUTTI_API_PYTHON_H
#pragma GCC visibility push(default)

/* From now on exit(0) ends this process with 1; other codes stay. For the last moments of an
   interpreter, which does not know its code yet, and in which no function of Python is called once
   it does. */
void tutti_python_fail_at_exit(void);
#pragma GCC visibility pop
#endif
