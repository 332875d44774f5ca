//! The list of networks below the head, as data.
//!
//! Validation checks here, without libtorch, that a network accepts an environment's observations; `crates/agents` builds the
//! layers. The head is chosen independently, by `dueling` and by the algorithm.

use envs::{Element, Observation};
use serde::{Deserialize, Serialize};
use value::Choice;

/// A network by name.
pub type Network = Choice<NetworkEntry>;

/// Every network.
const LIST: &[Network] = &[NATURE, SMALL, MINATAR, MLP];

/// Mnih et al. 2015.
pub const NATURE: Network = Choice::of(&NetworkEntry {
    name: "nature",
    about: "2015: 32, 64 and 64 channels",
    accepts: Accepts::Images { side_min: 36, side_max: i64::MAX },
    convolutions: &[conv(32, 8, 4), conv(64, 4, 2), conv(64, 3, 1)],
    hidden_layers: 1,
});

/// Mnih et al. 2013.
pub const SMALL: Network = Choice::of(&NetworkEntry {
    name: "small",
    about: "2013: 16 and 32 channels",
    accepts: Accepts::Images { side_min: 36, side_max: i64::MAX },
    convolutions: &[conv(16, 8, 4), conv(32, 4, 2)],
    hidden_layers: 1,
});

/// Young and Tian 2019, for boards of a few cells.
pub const MINATAR: Network = Choice::of(&NetworkEntry {
    name: "minatar",
    about: "2019: 16 channels of 3x3, for boards of up to 32x32",
    // Without strides, a larger image would make the hidden layer huge.
    accepts: Accepts::Images { side_min: 3, side_max: 32 },
    convolutions: &[conv(16, 3, 1)],
    hidden_layers: 1,
});

/// Two hidden layers.
pub const MLP: Network = Choice::of(&NetworkEntry {
    name: "mlp",
    about: "two hidden layers, for vectors",
    accepts: Accepts::Vectors,
    convolutions: &[],
    hidden_layers: 2,
});

/// A network in the settings. Every layer is followed by a rectifier.
#[derive(Debug)]
pub struct NetworkEntry {
    /// The name in settings.
    pub name: &'static str,
    /// A few words for help.
    pub about: &'static str,
    /// The observations it can process.
    pub accepts: Accepts,
    /// Its convolutions, bottom up, without padding.
    pub convolutions: &'static [Convolution],
    /// Fully connected layers of `hidden_units` after the convolutions; at least one. With `dueling` the last one exists twice.
    pub hidden_layers: usize,
}

/// Square kernel, same stride in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// Output channels.
    pub channels: i64,
    /// Side of the kernel.
    pub kernel: i64,
    /// Step of the kernel.
    pub stride: i64,
}

const fn conv(channels: i64, kernel: i64, stride: i64) -> Convolution {
    Convolution { channels, kernel, stride }
}

/// Which inputs a network can process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// Images with any number of channels.
    Images {
        /// The smallest height and width.
        side_min: i64,
        /// The largest height and width.
        side_max: i64,
    },
    /// Vectors of any length.
    Vectors,
}

/// The input of a network: the stacked observations of one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkInput {
    /// Bytes, each a fraction of 255.
    Image {
        /// Channels of all frames of a state.
        channels: i64,
        /// Rows.
        height: i64,
        /// Columns.
        width: i64,
    },
    /// This many f32 numbers.
    Vector(i64),
}

/// Why a network can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// No network processes such an observation.
    #[error("observations of {0:?} are neither bytes of an image nor f32 numbers")]
    Observation(Observation),
    /// This network does not.
    #[error("network {network} needs {needs}, but the input is {input}")]
    Network { network: &'static str, needs: String, input: NetworkInput },
}

impl NetworkInput {
    /// The input of a network whose states are `frame_stack` observations.
    pub fn of(observation: &Observation, frame_stack: usize) -> Result<Self, Mismatch> {
        let stack = frame_stack as i64;
        let shape: Vec<i64> = observation.shape.iter().map(|&size| size as i64).collect();
        match (observation.element, shape.as_slice()) {
            (Element::U8, &[height, width]) => Ok(NetworkInput::Image { channels: stack, height, width }),
            (Element::U8, &[channels, height, width]) => {
                Ok(NetworkInput::Image { channels: stack * channels, height, width })
            }
            (Element::F32, shape) => Ok(NetworkInput::Vector(stack * shape.iter().product::<i64>())),
            _ => Err(Mismatch::Observation(observation.clone())),
        }
    }

    /// Bytes of one state.
    pub fn bytes(&self) -> usize {
        match *self {
            NetworkInput::Image { channels, height, width } => (channels * height * width) as usize,
            NetworkInput::Vector(size) => size as usize * size_of::<f32>(),
        }
    }
}

impl std::fmt::Display for NetworkInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NetworkInput::Image { channels, height, width } => {
                write!(f, "images of {channels}x{height}x{width}")
            }
            NetworkInput::Vector(size) => write!(f, "a vector of {size}"),
        }
    }
}

impl NetworkEntry {
    /// Whether the network can process `input`.
    pub fn check(&self, input: NetworkInput) -> Result<(), Mismatch> {
        let (accepted, needs) = match (self.accepts, input) {
            (Accepts::Images { side_min, side_max }, NetworkInput::Image { height, width, .. }) => {
                let fits = height.min(width) >= side_min && height.max(width) <= side_max;
                let most = if side_max < i64::MAX {
                    format!(", at most {side_max}x{side_max}")
                } else {
                    String::new()
                };
                (fits, format!("images of at least {side_min}x{side_min}{most}"))
            }
            (Accepts::Images { .. }, NetworkInput::Vector(_)) => (false, "images".into()),
            (Accepts::Vectors, input) => (matches!(input, NetworkInput::Vector(_)), "a vector".into()),
        };
        if accepted { Ok(()) } else { Err(Mismatch::Network { network: self.name, needs, input }) }
    }
}

value::listed!(NetworkEntry, "network", LIST);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_channels_are_stacked() {
        let of =
            |element, shape: &[usize]| NetworkInput::of(&Observation { element, shape: shape.into() }, 4);
        assert_eq!(
            of(Element::U8, &[84, 80]),
            Ok(NetworkInput::Image { channels: 4, height: 84, width: 80 })
        );
        assert_eq!(
            of(Element::U8, &[3, 10, 9]),
            Ok(NetworkInput::Image { channels: 12, height: 10, width: 9 })
        );
        assert_eq!(of(Element::F32, &[4]), Ok(NetworkInput::Vector(16)));
        assert!(of(Element::U8, &[4]).unwrap_err().to_string().contains("neither bytes of an image"));
    }

    #[test]
    fn a_network_refuses_an_input_that_its_layers_can_not_process() {
        let image = |side| NetworkInput::Image { channels: 4, height: side, width: 84 };
        assert!(NATURE.check(image(36)).is_ok() && NATURE.check(image(35)).is_err());
        assert!(MINATAR.check(NetworkInput::Image { channels: 4, height: 10, width: 10 }).is_ok());
        assert!(MINATAR.check(image(10)).unwrap_err().to_string().contains("at most 32x32"));
        assert!(MLP.check(NetworkInput::Vector(4)).is_ok() && MLP.check(image(84)).is_err());
        assert!(
            SMALL
                .check(NetworkInput::Vector(4))
                .unwrap_err()
                .to_string()
                .ends_with("needs images, but the input is a vector of 4")
        );
    }

    #[test]
    fn every_network_leaves_something_of_the_smallest_image_it_accepts() {
        for network in LIST {
            assert!(network.hidden_layers >= 1, "{network}");
            let Accepts::Images { side_min, .. } = network.accepts else {
                assert!(network.convolutions.is_empty(), "{network}: a vector has no rows and columns");
                continue;
            };
            assert!(!network.convolutions.is_empty(), "{network}: bytes are scaled by the first convolution");
            let left = network.convolutions.iter().fold(side_min, |side, layer| {
                assert!(side >= layer.kernel, "{network}");
                (side - layer.kernel) / layer.stride + 1
            });
            assert!(left >= 1, "{network}");
        }
    }
}
