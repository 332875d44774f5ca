"""Computes every number of figures 2 to 5 again, from the CSV files alone.

    python3 crates/paper/tests/check.py paper

Another language, another route: 60 decimal digits and the definitions, differences of log-sum-exp included, where the
Rust code has forms that do not cancel. Needs nothing but Python. A number may differ by 1e-9 times max(1, |V|), a network's
target, which is computed in f32, by 1e-6 times that.

A row of the maze holds Q of both states, so its target is computed from reward, next_q_* and γ as well, and its move is
looked up in the drawing of the maze. CartPole's rows have no next state: the target is taken from its column.
"""

import csv
import math
import pathlib
import sys
from decimal import Decimal, getcontext

getcontext().prec = 60

GAMMA = Decimal(0.99)
TOLERANCE = 1e-9
# The learner computes targets in f32.
NETWORK_TOLERANCE = Decimal("1e-6")

# gym-maze's 5x5 sample. State 5 * row + column; actions north, east, south, west.
MAZE = """
+--+--+--+--+--+
|S       |     |
+--+  +  +--+  +
|  |  |  |     |
+  +  +  +  +  +
|     |  |  |  |
+--+--+  +  +  +
|     |  |  |  |
+  +  +  +  +  +
|  |        |G |
+--+--+--+--+--+
""".split("\n")[1:-1]
GOAL = 24


def moved(state, action):
    """Next state, reward, whether it is the goal."""
    down, right = [(-1, 0), (0, 1), (1, 0), (0, -1)][action]
    row, column = divmod(state, 5)
    wall = MAZE[2 * row + 1 + down][3 * column + (1 if right == 0 else 3 if right == 1 else 0)]
    after = state if wall in "-|" else 5 * (row + down) + column + right
    return after, 1.0 if after == GOAL else -0.1 / 25, after == GOAL


def soft_value(q, beta):
    top = max(q)
    return top + beta * sum(((x - top) / beta).exp() for x in q).ln()


def value(q, beta):
    return max(q) if beta == 0 else soft_value(q, beta)


def policy(q, beta):
    v = soft_value(q, beta)
    return [((x - v) / beta).exp() for x in q]


def exact(text):
    """The very number that an f64 holds."""
    return Decimal(float(text))


def vector(row, prefix):
    return [exact(text) for name, text in row.items() if name.startswith(prefix) and text]


def target_of(row, beta):
    """r + γ·V(s'), where a terminal mask leaves V(s') out at the goal; the checked column itself for a network's row."""
    if "next_online_q_0" in row:
        target, expected = exact(row["target"]), network_target(row, beta)
        if not abs(target - expected) <= NETWORK_TOLERANCE * max(1, abs(expected)):
            sys.exit(f"target is {row['target']} and should be {expected:.20e}: {row}")
        return target
    if not row.get("next_state"):
        return exact(row["target"])
    state, action = int(row["state"]), int(row["action"])
    step = int(row["next_state"]), float(row["reward"]), row["terminated"] == "1"
    assert row["terminated"] in "01" and row["terminal_mask"] in "01", row
    assert step == moved(state, action), f"the maze has no such step: {row}"
    bootstrap = Decimal(0) if step[2] and row["terminal_mask"] == "1" else value(vector(row, "next_q_"), beta)
    return exact(row["reward"]) + GAMMA * bootstrap


def computed(row):
    q = vector(row, "q_")
    action = int(row["action"])
    beta, alpha = exact(row["temperature"]), exact(row["alpha"])
    target = target_of(row, beta)
    td = target - q[action]
    new = list(q)
    new[action] += alpha * td
    if beta == 0:
        greedy = q.index(max(q))
        eiv = new[greedy] - q[greedy]
        upper, lower = abs(alpha * td), Decimal(0)
    else:
        old, changed = policy(q, beta), policy(new, beta)
        eiv = sum(p * (b - a) for p, a, b in zip(old, q, new))
        rho = (old[action], changed[action])
        upper, lower = max(rho) * abs(alpha * td), min(rho) * abs(alpha * td)
    evb = value(new, beta) - value(q, beta)
    bars = {"bound": upper, "abs_td": abs(alpha * td)} if "bound" in row else {}
    if bars:
        bars["policy"] = upper / abs(alpha * td)
    return bars | {
        "target": target,
        "td": td,
        "change": alpha * td,
        "evb": evb,
        "piv": evb - eiv,
        "eiv": eiv,
        "upper": upper,
        "lower": lower,
        "value": value(q, beta),
    }


def network_target(row, beta):
    """The target of a row of fig4.csv from the networks' Q(s'): r + discount * V(s')."""
    q = [Decimal(float(row[name])) for name in ("next_q_0", "next_q_1")]
    online = [Decimal(float(row[name])) for name in ("next_online_q_0", "next_online_q_1")]
    if beta != 0:
        value = soft_value(q, beta)
    elif row["double"] == "1":
        value = q[online.index(max(online))]
    else:
        value = max(q)
    failed = row["terminated"] == "1"
    text = row["preset"] == "paper-cartpole"
    expected = {"reward": -5.0 if failed and not text else 1.0, "discount": 0.0 if failed and text else 0.99}
    for column, number in expected.items():
        if float(row[column]) != number:
            sys.exit(f"{column} is {row[column]} and should be {number}: {row}")
    return Decimal(float(row["reward"])) + Decimal(float(row["discount"])) * value


def rows(folder, name):
    path = pathlib.Path(folder) / name
    return list(csv.DictReader(path.open())) if path.is_file() else None


def check_transitions(folder, name):
    """The largest difference."""
    transitions = rows(folder, name)
    if transitions is None:
        print(f"{name}: not there")
        return 0.0
    worst = 0.0
    for count, row in enumerate(transitions, 1):
        numbers = computed(row)
        scale = max(Decimal(1), abs(numbers["value"]))
        for column, number in numbers.items():
            off = float(abs(exact(row[column]) - number) / scale)
            worst = max(worst, off)
            if not off <= TOLERANCE:
                sys.exit(f"{name}, row {count}: {column} is {row[column]} and should be {number:.20e}")
    print(f"{name}: {len(transitions)} transitions agree")
    return worst


def near(ours, theirs):
    return abs(ours - float(theirs)) <= TOLERANCE * max(1.0, abs(ours))


def check_lengths(folder, name):
    """Curves are means of the episodes, and no transition is later than its episode's end."""
    episodes = rows(folder, f"{name}_episodes.csv")
    if episodes is None:
        return
    length = {(row["variant"], row["seed"], row["episode"]): int(row["steps"]) for row in episodes}
    for row in rows(folder, f"{name}_curves.csv"):
        of = [steps for (variant, _, episode), steps in length.items() if (variant, episode) == (row["variant"], row["episode"])]
        mean = sum(of) / len(of)
        spread = math.sqrt(sum((steps - mean) ** 2 for steps in of) / max(1, len(of) - 1) / len(of))
        assert len(of) == int(row["seeds"]) and near(mean, row["mean_steps"]) and near(spread, row["stderr"]), row
    for row in rows(folder, f"{name}.csv") + rows(folder, f"{name}_variants.csv"):
        steps = length[row["variant"], row["seed"], row["episode"]]
        assert int(row["step"]) < steps, row
        assert row["terminated"] == "0" or int(row["step"]) == steps - 1, row
    print(f"{name}: {len(length)} episodes agree with curves and transitions")


def median(numbers):
    numbers = sorted(numbers)
    middle = len(numbers) // 2
    return numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2


def check_factors(folder):
    """Figure 5's shares for the maze, from the transitions of figure 3 that it samples."""
    shares, sample = rows(folder, "fig5_factors.csv"), rows(folder, "fig3.csv")
    if shares is None or sample is None:
        return
    factors = [(float(row["upper"]), abs(float(row["change"]))) for row in sample]
    factors = [(bound, td, bound / td) for bound, td in factors]
    median_td, median_policy = median([td for _, td, _ in factors]), median([policy for *_, policy in factors])
    for row in shares:
        if row["system"] != "maze" or int(row["experiences"]) != len(sample):
            continue
        top = max(1, math.floor(len(factors) * float(row["top_share"]) + 0.5))
        assert top == int(row["top"]) and len({of["seed"] for of in sample}) == int(row["runs"]), row
        by_bound = sorted(factors, key=lambda of: -of[0])[:top]
        by_td = sorted(factors, key=lambda of: -of[1])[:top]
        numbers = {
            "td_high": sum(td > median_td for _, td, _ in by_bound) / top,
            "policy_high": sum(policy > median_policy for *_, policy in by_bound) / top,
            "both_high": sum(td > median_td and policy > median_policy for _, td, policy in by_bound) / top,
            "both_high_of_all": sum(td > median_td and policy > median_policy for _, td, policy in factors) / len(factors),
            "policy_high_of_top_td": sum(policy > median_policy for *_, policy in by_td) / top,
        }
        assert all(near(number, row[column]) for column, number in numbers.items()), (row, numbers)
        print(f"fig5: the shares of the highest {top} bounds of the maze agree")


def main(folder):
    names = ("fig2.csv", "fig2_variants.csv", "fig3.csv", "fig3_variants.csv", "fig4.csv", "fig5.csv")
    worst = max(check_transitions(folder, name) for name in names)
    for name in ("fig2", "fig3"):
        check_lengths(folder, name)
    check_factors(folder)
    print(f"the largest difference is {worst:.1e} times max(1, |V|)")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "paper")
