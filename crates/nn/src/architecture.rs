//! The shapes of a network: which layers, how large, and the list of parameters that follows.

use serde::{Deserialize, Serialize};

/// What the network looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// Bytes of `stack` gray pictures.
    Pixels {
        /// Pictures per state.
        stack: i64,
        /// Rows.
        height: i64,
        /// Columns.
        width: i64,
    },
    /// This many f32 numbers.
    Vector(i64),
}

impl Input {
    /// Bytes of one state.
    pub fn bytes(&self) -> usize {
        match *self {
            Input::Pixels { stack, height, width } => (stack * height * width) as usize,
            Input::Vector(size) => size as usize * size_of::<f32>(),
        }
    }
}

/// The layers below the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trunk {
    /// Mnih et al. 2015: 32 8×8/4, 64 4×4/2, 64 3×3/1, then one hidden layer.
    Nature,
    /// Mnih et al. 2013: 16 8×8/4, 32 4×4/2, then one hidden layer.
    Small,
    /// Two hidden layers.
    Mlp,
}

/// Everything needed to build a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Architecture {
    /// What it looks at.
    pub input: Input,
    /// The layers below the head.
    pub trunk: Trunk,
    /// Width of the hidden layer or layers.
    pub hidden: i64,
    /// Actions, one output each.
    pub actions: i64,
    /// Whether the head is split into value and advantage (Wang et al. 2016).
    pub dueling: bool,
}

/// Input and trunk do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{trunk:?} can't look at {input:?}: convolutions need pictures of at least 36x36, Mlp needs a vector"
)]
pub struct Mismatch {
    trunk: Trunk,
    input: Input,
}

/// A convolution: channels out, kernel, stride.
pub(crate) type Convolution = (i64, i64, i64);

impl Trunk {
    pub(crate) fn convolutions(self) -> &'static [Convolution] {
        match self {
            Trunk::Nature => &[(32, 8, 4), (64, 4, 2), (64, 3, 1)],
            Trunk::Small => &[(16, 8, 4), (32, 4, 2)],
            Trunk::Mlp => &[],
        }
    }
}

/// A named parameter tensor: its shape and the number of inputs that feed each of its outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterSpec {
    /// Name in a weights file.
    pub name: String,
    /// Shape.
    pub shape: Vec<i64>,
    /// Inputs per output, which sets the scale of the first values.
    pub fan_in: i64,
}

impl Architecture {
    /// The parameters in order: weight and bias of each layer, bottom up.
    pub fn parameters(&self) -> Result<Vec<ParameterSpec>, Mismatch> {
        let mut specs = Vec::new();
        let mut layer = |name: String, weight: Vec<i64>| {
            let (outputs, fan_in) = (weight[0], weight[1..].iter().product());
            specs.push(ParameterSpec { name: format!("{name}.weight"), shape: weight, fan_in });
            specs.push(ParameterSpec { name: format!("{name}.bias"), shape: vec![outputs], fan_in });
        };
        let mut features = match (self.input, self.trunk) {
            (Input::Vector(size), Trunk::Mlp) => {
                layer("hidden0".into(), vec![self.hidden, size]);
                self.hidden
            }
            (Input::Pixels { stack, height, width }, Trunk::Nature | Trunk::Small)
                if height.min(width) >= 36 =>
            {
                let (mut channels, mut height, mut width) = (stack, height, width);
                for (index, (outputs, kernel, stride)) in self.trunk.convolutions().iter().enumerate() {
                    layer(format!("conv{index}"), vec![*outputs, channels, *kernel, *kernel]);
                    channels = *outputs;
                    height = (height - kernel) / stride + 1;
                    width = (width - kernel) / stride + 1;
                }
                channels * height * width
            }
            (input, trunk) => return Err(Mismatch { trunk, input }),
        };
        layer("hidden".into(), vec![self.hidden, features]);
        features = self.hidden;
        layer("advantage".into(), vec![self.actions, features]);
        if self.dueling {
            layer("value".into(), vec![1, features]);
        }
        Ok(specs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atari(trunk: Trunk, hidden: i64) -> Architecture {
        let input = Input::Pixels { stack: 4, height: 84, width: 84 };
        Architecture { input, trunk, hidden, actions: 6, dueling: false }
    }

    fn count(architecture: &Architecture) -> i64 {
        architecture.parameters().unwrap().iter().map(|spec| spec.shape.iter().product::<i64>()).sum()
    }

    #[test]
    fn the_published_networks_have_their_published_sizes() {
        // 2015: 8,224 + 32,832 + 36,928 + 1,606,144 + 3,078; 2013: 4,112 + 8,224 + 663,808 + 1,542.
        assert_eq!(count(&atari(Trunk::Nature, 512)), 1_687_206);
        assert_eq!(count(&atari(Trunk::Small, 256)), 677_686);
    }

    #[test]
    fn a_trunk_refuses_an_input_it_can_not_see() {
        let vector = Architecture { input: Input::Vector(4), ..atari(Trunk::Nature, 512) };
        assert!(vector.parameters().is_err());
        let tiny = Input::Pixels { stack: 4, height: 20, width: 84 };
        assert!(Architecture { input: tiny, ..atari(Trunk::Small, 256) }.parameters().is_err());
        assert!(atari(Trunk::Mlp, 64).parameters().is_err());
    }
}
