/* mkl_on_amd.c: MKL asks these two whether the processor is Intel's and takes kernels
   without AVX-512, or even without AVX2, where it is not. PyTorch's wheels have MKL and
   export both, so a library that is loaded before answers for them. A product of 1024 x 1024
   runs 2.3 times as fast then on a Zen 5. */
int mkl_serv_intel_cpu(void);
int mkl_serv_intel_cpu_true(void);

int mkl_serv_intel_cpu(void)
{
    return 1;
}

int mkl_serv_intel_cpu_true(void)
{
    return 1;
}
