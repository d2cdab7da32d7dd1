//! Command line.
use holdoff_sim::{Setup, clock, scenario::Scenario};
#[allow(clippy::print_stdout)]
fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    for name in names {
        let s = Scenario::named(&name).unwrap();
        let t = clock::now();
        let run = holdoff_sim::run(&Setup::product(s, 1), clock::now()).unwrap();
        let t1 = clock::now() - t;
        let r = run.report();
        println!(
            "{name} {:?} {:?} n={} good {:.3} avoid {:.4} att {:.3} waste {:.4} fa {:.4} {:.4?} rec {} spike {:.2} crit {:.4} ns {:.4} def {:.4} vict {:.4} rej {:.3} early {} late {:.4}",
            t1,
            clock::now() - t - t1,
            r.calls,
            r.goodput,
            r.avoidable_loss,
            r.attempts,
            r.wasted,
            r.false_accepts,
            r.false_accepts_by_tier,
            r.recovery_s,
            r.spike,
            r.critical,
            r.non_sheddable,
            r.deferrable,
            r.victims,
            r.reject_cost,
            r.early_retries,
            r.late_success
        );
    }
}
