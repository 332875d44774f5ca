//! Weighted sampling over slots in O(log n).
//!
//! Every sample and every priority update passes here, so neither allocates nor recurses. Inner nodes are recomputed
//! from their children in a fixed order, never adjusted. So the tree is a pure function of its leaves: it has no drift,
//! and a rebuilt tree equals the incremental one bit for bit. Nodes are wide, because at a million leaves cache misses
//! dominate, and five levels miss less often than twenty. Not an alias table: priorities change after each learner
//! step, and rebuilding one is O(n). Knows nothing of items, tables or time.

use crate::store::memory::prefetch;

/// Children of a node: 16 doubles are two adjacent cache lines.
const WIDTH: usize = 16;

/// A tree over a fixed number of leaves, each with a weight that is finite and not negative.
#[derive(Clone, Debug)]
pub struct SumTree {
    /// All nodes, level by level from the leaves to the root. A node holds its children's weights.
    nodes: Vec<Node>,
    /// Where each level starts in `nodes`.
    levels: Vec<usize>,
    leaves: usize,
    total: f64,
    /// Scratch space for batch updates, kept to avoid allocating.
    changes: Vec<(u32, f64)>,
    /// Nodes that a batch update has to recompute.
    touched: Vec<u32>,
    /// A bit for each node of any level but the leaves': whether it is among `touched` already.
    marked: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(64))]
struct Node([f64; WIDTH]);

impl SumTree {
    /// A tree of `leaves` zero weights. There may be at most 2³².
    pub fn new(leaves: usize) -> Self {
        assert!(leaves <= 1 << 32, "leaves are counted by u32");
        let mut levels = Vec::new();
        let (mut count, mut width) = (0, leaves);
        loop {
            width = width.div_ceil(WIDTH).max(1);
            levels.push(count);
            count += width;
            if width == 1 {
                break;
            }
        }
        let nodes = vec![Node([0.0; WIDTH]); count];
        let marked = vec![0; leaves.div_ceil(WIDTH * WIDTH).div_ceil(64)];
        Self { nodes, levels, leaves, total: 0.0, changes: Vec::new(), touched: Vec::new(), marked }
    }

    /// Memory that [`SumTree::new`] allocates for this many leaves.
    pub(crate) fn bytes_for(leaves: usize) -> usize {
        let nodes = leaves.div_ceil(WIDTH).saturating_mul(WIDTH) / (WIDTH - 1) + WIDTH;
        nodes.saturating_mul(size_of::<Node>() + 1)
    }

    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Sum of all weights, in the order in which the tree adds them.
    pub fn total(&self) -> f64 {
        self.total
    }

    pub fn get(&self, leaf: u32) -> f64 {
        let leaf = self.checked(leaf);
        self.nodes[leaf / WIDTH].0[leaf % WIDTH]
    }

    /// Changes the weight of one leaf.
    pub fn set(&mut self, leaf: u32, weight: f64) {
        debug_assert!(weight.is_finite() && weight >= 0.0, "weight {weight}");
        let (mut index, mut weight) = (self.checked(leaf), weight);
        for &level in &self.levels {
            let node = &mut self.nodes[level + index / WIDTH];
            node.0[index % WIDTH] = weight;
            weight = node.sum();
            index /= WIDTH;
        }
        self.total = weight;
    }

    /// Changes many weights, recomputing each inner node once. The last change of a leaf wins.
    ///
    /// Prefetches the nodes of all changes before it makes the first one, so that their cache misses overlap.
    pub fn set_many(&mut self, changes: impl IntoIterator<Item = (u32, f64)>) {
        self.changes.clear();
        for (leaf, weight) in changes {
            debug_assert!(weight.is_finite() && weight >= 0.0, "weight {weight}");
            prefetch(&self.nodes[self.checked(leaf) / WIDTH]);
            self.changes.push((leaf, weight));
        }
        let Self { nodes, levels, changes, touched, marked, .. } = self;
        touched.clear();
        for &(leaf, weight) in changes.iter() {
            nodes[leaf as usize / WIDTH].0[leaf as usize % WIDTH] = weight;
            touched.push(leaf / WIDTH as u32);
        }
        // Few changed nodes: recompute them one by one. From the level where they are many: recompute whole levels.
        let mut few = true;
        for number in 1..levels.len() {
            let (nodes, parents) = two_levels(nodes, levels, number);
            if !few {
                sum_all(nodes, parents);
            } else if parents.len() <= touched.len() {
                touched.iter().for_each(|&node| sum_one(nodes, parents, node));
                few = false;
            } else {
                let mut count = 0;
                for at in 0..touched.len() {
                    let node = touched[at];
                    sum_one(nodes, parents, node);
                    // Deduplicates the parents without an unpredictable branch.
                    let parent = node as usize / WIDTH;
                    let (word, bit) = (&mut marked[parent / 64], 1 << (parent % 64));
                    touched[count] = parent as u32;
                    count += usize::from(*word & bit == 0);
                    *word |= bit;
                }
                touched.truncate(count);
                touched.iter().for_each(|&parent| marked[parent as usize / 64] = 0);
            }
        }
        self.total = self.root().sum();
    }

    /// Sets every leaf to its weight by `weight_of`, in O(n).
    pub fn rebuild(&mut self, mut weight_of: impl FnMut(u32) -> f64) {
        for leaf in 0..self.leaves {
            self.nodes[leaf / WIDTH].0[leaf % WIDTH] = weight_of(leaf as u32);
        }
        for number in 1..self.levels.len() {
            let (nodes, parents) = two_levels(&mut self.nodes, &self.levels, number);
            sum_all(nodes, parents);
        }
        self.total = self.root().sum();
    }

    /// The first leaf up to which the weights sum to more than `mass`.
    ///
    /// Never a leaf of weight zero, however the sums were rounded. A mass at or beyond the total gives the last leaf
    /// with weight. `None` if all weights are 0.
    pub fn find(&self, mass: f64) -> Option<u32> {
        if self.total <= 0.0 {
            return None;
        }
        let (mut index, mut mass) = (0, mass);
        for &level in self.levels.iter().rev() {
            let (child, rest) = self.nodes[level + index].pick(mass);
            index = index * WIDTH + child;
            mass = rest;
        }
        Some(index as u32)
    }

    /// [`SumTree::find`] for all of `masses`, which it overwrites. Puts the leaves into `found`, none if all weights
    /// are 0.
    ///
    /// Descends for all masses together, level by level, so that their cache misses overlap.
    pub fn find_many(&self, masses: &mut [f64], found: &mut Vec<u32>) {
        found.clear();
        if self.total <= 0.0 {
            return;
        }
        found.resize(masses.len(), 0);
        let mut above = self.nodes.len();
        for (number, &level) in self.levels.iter().enumerate().rev() {
            let nodes = &self.nodes[level..above];
            let below = &self.nodes[number.checked_sub(1).map_or(level, |below| self.levels[below])..level];
            for (index, mass) in found.iter_mut().zip(masses.iter_mut()) {
                let (child, rest) = nodes[*index as usize].pick(*mass);
                *index = *index * WIDTH as u32 + child as u32;
                *mass = rest;
                below.get(*index as usize).inspect(|node| prefetch(*node));
            }
            above = level;
        }
    }

    fn root(&self) -> &Node {
        self.nodes.last().expect("a tree has a root")
    }

    /// Checks the range of a leaf. The padding up to a whole node must stay zero.
    fn checked(&self, leaf: u32) -> usize {
        assert!((leaf as usize) < self.leaves, "leaf {leaf} of {}", self.leaves);
        leaf as usize
    }
}

/// The nodes of level `number - 1`, and level `number`: their parents.
fn two_levels<'a>(nodes: &'a mut [Node], levels: &[usize], number: usize) -> (&'a [Node], &'a mut [Node]) {
    let end = levels.get(number + 1).copied().unwrap_or(nodes.len());
    let (before, parents) = nodes[..end].split_at_mut(levels[number]);
    (&before[levels[number - 1]..], parents)
}

/// Writes a node's sum into its parent.
fn sum_one(nodes: &[Node], parents: &mut [Node], node: u32) {
    let node = node as usize;
    parents[node / WIDTH].0[node % WIDTH] = nodes[node].sum();
}

/// Writes every node's sum into its parent.
fn sum_all(nodes: &[Node], parents: &mut [Node]) {
    for (nodes, parent) in nodes.chunks(WIDTH).zip(parents) {
        parent.0.iter_mut().zip(nodes).for_each(|(sum, node)| *sum = node.sum());
    }
}

/// Compares leaves and inner nodes bit for bit.
impl PartialEq for SumTree {
    fn eq(&self, other: &Self) -> bool {
        let bits = |tree: &Self| tree.nodes.iter().map(|n| n.0.map(f64::to_bits)).collect::<Vec<_>>();
        self.leaves == other.leaves && bits(self) == bits(other)
    }
}

impl Node {
    /// Adds the children in the only order used anywhere: four running sums, which fit into one vector register.
    fn sum(&self) -> f64 {
        let mut sums = [0.0; 4];
        for four in self.0.chunks_exact(4) {
            for (sum, child) in sums.iter_mut().zip(four) {
                *sum += child;
            }
        }
        (sums[0] + sums[1]) + (sums[2] + sums[3])
    }

    /// The child at `mass`, and the rest of `mass` within it: first the group of four, then the child in the group.
    /// Branches here would be unpredictable, so the only one is for an exception.
    #[inline]
    fn pick(&self, mass: f64) -> (usize, f64) {
        let fours = self.0.as_chunks::<4>().0;
        let sum = |four: &[f64; 4]| (four[0] + four[1]) + (four[2] + four[3]);
        let first = sum(&fours[0]);
        let second = first + sum(&fours[1]);
        let (group, mass) = past(mass, [first, second, second + sum(&fours[2])]);
        let four = &fours[group];
        let second = four[0] + four[1];
        let (child, rest) = past(mass, [four[0], second, second + four[2]]);
        if four[child] > 0.0 { (4 * group + child, rest) } else { self.pick_last(4 * group + child) }
    }

    /// The sums in [`Node::pick`] and [`Node::sum`] round differently, so `mass` may lie beyond the last child. Then
    /// picks the last child with weight, with its whole weight as rest.
    #[cold]
    fn pick_last(&self, end: usize) -> (usize, f64) {
        let last = self.0[..end].iter().rposition(|&weight| weight > 0.0);
        let last = last.or_else(|| self.0.iter().position(|&weight| weight > 0.0)).unwrap_or(0);
        (last, self.0[last])
    }
}

/// How many of three ascending ends are at most `mass`, and the distance of `mass` from the last of them.
#[inline]
fn past(mass: f64, ends: [f64; 3]) -> (usize, f64) {
    let count = ends.map(|end| usize::from(mass >= end)).iter().sum();
    (count, mass - [0.0, ends[0], ends[1], ends[2]][count])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Weights over many magnitudes, a third of them zero.
    fn weight(rng: &mut ChaCha8Rng) -> f64 {
        match rng.random_range(0..3) {
            0 => 0.0,
            1 => rng.random::<f64>(),
            _ => 10f64.powi(rng.random_range(-12..12)) * rng.random::<f64>(),
        }
    }

    fn rebuilt(tree: &SumTree) -> SumTree {
        let mut other = SumTree::new(tree.leaves());
        other.rebuild(|leaf| tree.get(leaf));
        other
    }

    #[test]
    fn ten_million_changes_one_by_one_and_in_batches_leave_a_rebuilt_tree() {
        // 65 changes in each round.
        let sizes = [1, 2, 15, 16, 17, 255, 257, 5_000, 100_000];
        let rounds = 10_000_000 / 65 / sizes.len() + 1;
        for leaves in sizes {
            let mut rng = ChaCha8Rng::seed_from_u64(leaves as u64);
            let mut tree = SumTree::new(leaves);
            for round in 0..rounds {
                let mut leaf = || rng.random_range(0..leaves as u32);
                let one = leaf();
                let batch: Vec<u32> = (0..64).map(|_| leaf()).collect();
                tree.set(one, weight(&mut rng));
                tree.set_many(batch.into_iter().map(|leaf| (leaf, weight(&mut rng))));
                if round % 1_000 == 0 {
                    assert_eq!(tree, rebuilt(&tree));
                }
            }
            assert_eq!(tree, rebuilt(&tree));
            assert_eq!(tree.total().to_bits(), rebuilt(&tree).total().to_bits());
        }
    }

    #[test]
    fn an_empty_tree_finds_nothing() {
        assert_eq!(SumTree::new(0).find(0.0), None);
        assert_eq!(SumTree::new(100).find(0.0), None);
    }

    #[test]
    fn mass_beyond_the_total_gives_the_last_leaf_with_weight() {
        let mut tree = SumTree::new(1_000);
        tree.set(3, 1.0);
        tree.set(700, 0.1);
        for mass in [tree.total(), tree.total() * 2.0, f64::MAX, f64::INFINITY] {
            assert_eq!(tree.find(mass), Some(700));
        }
        assert_eq!(tree.find(0.0), Some(3));
    }

    /// 40 leaves, 400,000 draws. The statistic has 39 degrees of freedom less the zero weights;
    /// 75 is beyond the 99.9th percentile of chi-square with 39.
    #[test]
    fn leaves_are_found_in_proportion_to_their_weights() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut tree = SumTree::new(40);
        (0..40).for_each(|leaf| tree.set(leaf, f64::from(leaf % 5)));
        let draws = 400_000;
        let mut counts = [0u32; 40];
        for _ in 0..draws {
            let mass = rng.random::<f64>() * tree.total();
            counts[tree.find(mass).unwrap() as usize] += 1;
        }
        let mut chi_square = 0.0;
        for (leaf, &count) in counts.iter().enumerate() {
            let expected = f64::from(draws) * tree.get(leaf as u32) / tree.total();
            if expected == 0.0 {
                assert_eq!(count, 0);
            } else {
                chi_square += (f64::from(count) - expected).powi(2) / expected;
            }
        }
        assert!(chi_square < 75.0, "chi-square {chi_square}");
    }

    proptest! {
        /// With whole-number weights all sums are exact, so the leaf is known exactly.
        #[test]
        fn finds_what_a_linear_scan_finds(
            weights in prop::collection::vec(0u32..5, 1..600),
            at in 0.0f64..1.0,
        ) {
            let mut tree = SumTree::new(weights.len());
            tree.set_many(weights.iter().enumerate().map(|(i, &w)| (i as u32, f64::from(w))));
            let total: u32 = weights.iter().sum();
            prop_assert_eq!(tree.total(), f64::from(total));
            let mass = (at * f64::from(total)).floor();
            let mut before = 0.0;
            let expected = weights.iter().position(|&w| {
                before += f64::from(w);
                mass < before
            });
            prop_assert_eq!(tree.find(mass), expected.map(|leaf| leaf as u32));
            let mut together = Vec::new();
            tree.find_many(&mut [mass, 0.0, mass], &mut together);
            let apart: Option<Vec<u32>> = [mass, 0.0, mass].into_iter().map(|mass| tree.find(mass)).collect();
            prop_assert_eq!(together, apart.unwrap_or_default());
        }

        /// With weights of very different size sums are rounded; still no zero leaf, and the leaf
        /// is the right one up to the rounding.
        #[test]
        fn rounding_never_finds_a_zero_leaf(seed: u64, leaves in 1usize..700, at in 0.0f64..=1.0) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut tree = SumTree::new(leaves);
            (0..leaves as u32).for_each(|leaf| tree.set(leaf, weight(&mut rng)));
            let mass = at * tree.total();
            if let Some(leaf) = tree.find(mass) {
                prop_assert!(tree.get(leaf) > 0.0);
                let before: f64 = (0..leaf).map(|l| tree.get(l)).sum();
                let tolerance = tree.total() * 1e-12;
                prop_assert!(before <= mass + tolerance);
                prop_assert!(mass <= before + tree.get(leaf) + tolerance);
            } else {
                prop_assert_eq!(tree.total(), 0.0);
            }
        }
    }
}
