#!/usr/bin/env python3
"""Golden numbers of crates/value, by an independent calculation.

Every quantity is computed from its definition in the paper (sums over actions, plain differences)
with mpmath at 1,000 digits, so that no cancellation matters, and rounded once to the nearest f64.
None of the stable forms of the Rust code appear here.

    pip install mpmath
    python3 golden.py > golden/table.rs
"""

import random

from mpmath import exp, log, mp, mpf

mp.dps = 1000


def value(q, beta):
    return beta * log(sum(exp(x / beta) for x in q))


def policy(q, beta):
    weights = [exp(x / beta) for x in q]
    total = sum(weights)
    return [w / total for w in weights]


def soft(q, action, td, beta):
    """value, log pi_old, entropy, pi_old, pi_new, EVB, PIV, EIV: the paper's definitions, literally."""
    q, td, beta = [mpf(x) for x in q], mpf(td), mpf(beta)
    q_new = [x + td if a == action else x for a, x in enumerate(q)]
    old, new = policy(q, beta), policy(q_new, beta)
    # The logarithm of a probability from Q, as the probability itself may be 1 to all digits.
    log_old = [(x - value(q, beta)) / beta for x in q]
    log_new = [(x - value(q_new, beta)) / beta for x in q_new]
    evb = value(q_new, beta) - value(q, beta)
    piv = sum(p * (x - beta * l) for p, x, l in zip(new, q_new, log_new)) - sum(
        p * (x - beta * l) for p, x, l in zip(old, q_new, log_old)
    )
    eiv = sum(p * (y - x) for p, x, y in zip(old, q, q_new))
    entropy = -sum(p * l for p, l in zip(old, log_old))
    assert abs(evb - piv - eiv) <= mpf(10) ** -900 * max(1, *map(abs, q))
    return [value(q, beta), log_old[action], entropy, old[action], new[action], evb, piv, eiv]


def double(online, target, beta):
    online, target, beta = [mpf(x) for x in online], [mpf(x) for x in target], mpf(beta)
    return sum(p * (x - beta * log(p)) for p, x in zip(policy(online, beta), target))


def n_step_soft(rewards, log_probabilities, discount, beta, bootstrap):
    discount, beta = mpf(discount), mpf(beta)
    total = sum(discount**k * mpf(r) for k, r in enumerate(rewards))
    total -= beta * sum(discount**k * mpf(l) for k, l in enumerate(log_probabilities) if k >= 1)
    return total + (discount ** len(rewards) * mpf(bootstrap) if bootstrap is not None else 0)


EXTREMES = [
    # (Q, action, td, temperature)
    ([1.5], 0, -0.25, 0.05),  # one action
    ([1.5], 0, 1e-300, 1e3),
    ([0.0, 0.0, 0.0, 0.0], 2, 1e-300, 1e-3),  # equal values, tiny TD
    ([7.0, 7.0], 1, -1e-9, 100.0),
    ([1e12, 1e12, 1e12], 0, 0.5, 0.05),  # huge values
    ([1e12, -1e12], 1, 2e12, 1e-3),  # a gap of 2e15 temperatures, closed exactly
    ([1000000000000.123, 0.1235, 0.12], 1, 1e12, 1e-3),  # and closed to what a sum would round off
    ([-1e12, 1e12], 0, 1.0, 1e3),  # a probability that is 0
    ([1e12, -1e12], 0, -1.0, 1e-3),  # and one that is 1
    ([13863.0, 13862.5, 13864.0, 13863.2], 1, 1e-5, 100.0),  # naive differences violate the bounds here
    ([10.0, 0.0, -1.0], 0, -9.0, 0.2),  # from certain to unlikely
    ([10.0, 0.0, -1.0], 0, -50.0, 0.05),
    ([10.0, 0.0, -1.0], 1, 50.0, 0.05),  # from unlikely to certain
    ([35.0, 0.0], 1, 1.0, 1.0),  # unlikely before and after
    ([35.0, 0.0], 0, -1.0, 1.0),  # certain before and after
    ([35.0, 0.0], 0, -36.0, 0.05),  # 1 - pi underflows before, pi after
    ([35.0, 0.0], 1, 1e-150, 0.05),
    ([0.3, 0.1, 0.2], 0, 0.999e-3, 1e-3),  # both sides of the switch at |td| = temperature
    ([0.3, 0.1, 0.2], 0, 1.001e-3, 1e-3),
    ([0.3, 0.2999, 0.2], 0, -0.999e-3, 1e-3),
    ([0.3, 0.2999, 0.2], 0, -1.001e-3, 1e-3),
]


def random_case(rng):
    beta = 10 ** rng.uniform(-3, 3)
    spread = beta * 10 ** rng.uniform(-2, 2)
    offset = rng.choice([0.0, 1.0, -30.0, 1e4])
    q = [offset + rng.gauss(0, spread) for _ in range(rng.randint(2, 6))]
    td = rng.choice([-1, 1]) * beta * 10 ** rng.uniform(-12, 2)
    return q, rng.randrange(len(q)), td, beta


def rust(x):
    if x is None:
        return "None"
    if isinstance(x, list):
        return "&[" + ", ".join(rust(y) for y in x) + "]"
    return repr(float(x) + 0.0)


def main():
    rng = random.Random(20211)
    print("//! Written by `golden.py`, which says how. Change that, not this.\n")
    print("use super::{Double, NStep, Soft};\n")
    print("#[rustfmt::skip]\npub const SOFT: &[Soft] = &[")
    for q, action, td, beta in EXTREMES + [random_case(rng) for _ in range(40)]:
        given = f"q: {rust(q)}, action: {action}, td: {rust(td)}, temperature: {rust(beta)}"
        names = ["value", "log_old", "entropy", "old", "new", "evb", "piv", "eiv"]
        wanted = ", ".join(f"{n}: {rust(x)}" for n, x in zip(names, soft(q, action, td, beta)))
        print(f"    Soft {{ {given}, {wanted} }},")
    print("];\n")
    print("#[rustfmt::skip]\npub const DOUBLE: &[Double] = &[")
    for _ in range(8):
        beta = 10 ** rng.uniform(-3, 3)
        online = [rng.gauss(0, beta) for _ in range(4)]
        target = [x + rng.gauss(0, beta) for x in online]
        given = f"online: {rust(online)}, target: {rust(target)}, temperature: {rust(beta)}"
        print(f"    Double {{ {given}, value: {rust(double(online, target, beta))} }},")
    print("];\n")
    print("#[rustfmt::skip]\npub const N_STEP: &[NStep] = &[")
    for n in [1, 1, 3, 3, 10, 10]:
        rewards = [float(rng.choice([-1, 0, 1])) for _ in range(n)]
        logs = [-rng.expovariate(1) for _ in range(n)]
        bootstrap = rng.choice([None, rng.gauss(0, 5)])
        given = f"rewards: {rust(rewards)}, log_probabilities: {rust(logs)}, discount: 0.99, temperature: 0.05"
        shown = "None" if bootstrap is None else f"Some({rust(bootstrap)})"
        target = n_step_soft(rewards, logs, 0.99, 0.05, bootstrap)
        print(f"    NStep {{ {given}, bootstrap: {shown}, target: {rust(target)} }},")
    print("];")


if __name__ == "__main__":
    main()
