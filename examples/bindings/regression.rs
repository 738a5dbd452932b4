// regression.rs: Tutti from Rust. Four workers fit y = w.x + b, as examples/regression.c does.
// docs/BINDINGS.md makes bindings.rs from the headers. The method is the first argument (ddp).
#[allow(dead_code, non_camel_case_types, non_upper_case_globals, non_snake_case)]
mod tutti { include!(concat!(env!("OUT_DIR"), "/bindings.rs")); }
use std::{ffi::{c_void, CStr, CString}, process::exit, ptr::null_mut, slice, sync::Mutex};
use tutti::{tutti_status::{TUTTI_CLOSED, TUTTI_OK, Type as Status}, *};

const DIM: usize = 8; // weights, then the bias
struct Engine(*mut tutti_engine);
impl Drop for Engine { fn drop(&mut self) { unsafe { tutti_engine_close(self.0) } } }
struct Job { method: CString, worst: Mutex<f64> } // of all workers, which are threads

fn truth(k: usize) -> f64 { 0.5 * k as f64 - 1.0 }
fn feature(sample: u64, k: usize) -> f64 {
    if k == DIM { 1.0 } else { unsafe { tutti_normal(tutti_rng { seed: 7, stream: 1, step: sample }, k as u64) } }
}
fn check(status: Status) -> Result<(), Status> { if status == TUTTI_OK { Ok(()) } else { Err(status) } }

unsafe fn train(world: *mut tutti_world, job: &Job, err: *mut tutti_error) -> Result<(), Status> {
    let (name, dim) = (b"weights\0".as_ptr().cast(), [DIM as u64 + 1, 0, 0, 0]);
    let params = tutti_param { name, dims: 1, dim, ..Default::default() };
    let options = tutti_engine_options { method: job.method.as_ptr(), optimizer: b"sgd(lr=0.1)\0".as_ptr().cast(),
        batch: 32, data_samples: 4096, seed: 1, ..Default::default() };
    let share = tutti_share { samples: 4096, workers: 4, batch: 32, accumulate: 1, seed: 1, ..Default::default() };
    let (mut opened, mut more, mut pass) = (null_mut(), true, tutti_pass::default());
    check(tutti_engine_open(&mut opened, world, &params, 1, &options, err))?;
    let e = Engine(opened);
    while { check(tutti_engine_more_epochs(e.0, 12, &mut more, err))?; more } {
        loop {
            let status = tutti_engine_pass_begin(e.0, &mut pass, err);
            if status == TUTTI_CLOSED { break } // no more passes in this step
            check(status)?;
            let w = slice::from_raw_parts(tutti_engine_values(e.0, 0), DIM + 1);
            let g = slice::from_raw_parts_mut(tutti_engine_gradient(e.0, 0), DIM + 1);
            let mut loss = 0.0;
            g.fill(0.0);
            for i in 0..pass.samples as u64 {
                let id = tutti_share_sample(&share, pass.epoch, pass.position + i);
                let off: f64 = (0..=DIM).map(|k| (w[k] as f64 - truth(k)) * feature(id, k)).sum();
                (0..=DIM).for_each(|k| g[k] += (off * feature(id, k) / pass.divisor as f64) as f32);
                loss += off * off / 2.0;
            }
            check(tutti_engine_grad_ready(e.0, 0, err))?;
            check(tutti_engine_pass_end(e.0, loss, err))?;
        }
        check(tutti_engine_step(e.0, err))?;
    }
    check(tutti_engine_finish(e.0, err))?;
    let w = slice::from_raw_parts(tutti_engine_values(e.0, 0), DIM + 1).iter().enumerate();
    let worst = w.map(|(k, w)| (*w as f64 - truth(k)).abs()).fold(0.0, f64::max);
    if tutti_world_rank(world) == 0 { *job.worst.lock().unwrap() = worst }
    Ok(())
}

unsafe extern "C" fn worker(world: *mut tutti_world, arg: *mut c_void, err: *mut tutti_error) -> Status {
    train(world, &*(arg as *const Job), err).err().unwrap_or(TUTTI_OK)
}

fn main() {
    let method = CString::new(std::env::args().nth(1).unwrap_or("ddp".into())).expect("no NUL in a method");
    let (job, mut err) = (Job { method, worst: Mutex::new(1.0) }, tutti_error::default());
    let arg = &job as *const Job as *mut c_void;
    if unsafe { tutti_world_run(b"shm\0".as_ptr().cast(), 4, Some(worker), arg, &mut err) } != TUTTI_OK {
        eprintln!("{}", unsafe { CStr::from_ptr(err.text.as_ptr()) }.to_string_lossy());
        exit(1);
    }
    let worst = *job.worst.lock().unwrap();
    println!("largest error of a weight: {:.1e}", worst);
    exit((worst >= 1e-3) as i32);
}
