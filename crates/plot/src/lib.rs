//! Pictures of numbers: a page of panels, each with two axes and some layers, as SVG and as PNG.
//!
//! All of Quiver's figures are drawn here, so that they have one style: the curves of `quiver plot`, the figures
//! of the paper, the soak test of the benchmarks. A [`Page`] is composed of plain marks in units of the page (`mark`),
//! which is arithmetic; `svg` writes them, as a file or into an HTML page, and `png` rasterises that file. A program that
//! writes no PNG leaves the feature `png` off and links no rasteriser. Knows nothing of runs, games or files.
//!
//! ```
//! use plot::{Axis, Colour, Layer, Page, Panel};
//!
//! let mut page = Page::new("Replays until the policy is optimal", "mean and standard error");
//! let panel = Panel::new("", Axis::log("cells N"), Axis::log("replays"))
//!     .with(Layer::curve("random", Colour::Orange, vec![(1.0, 4.0, 0.5), (10.0, 350.0, 20.0)]));
//! page.panels.push(panel);
//! assert!(page.svg().unwrap().ends_with("</svg>\n"));
//! ```

#![forbid(unsafe_code)]

mod axis;
mod clip;
mod colour;
mod frame;
mod layer;
mod legend;
mod lettering;
mod mark;
mod number;
mod page;
mod panel;
#[cfg(feature = "png")]
mod png;
mod shape;
mod svg;
mod ticks;

pub use axis::Axis;
pub use colour::Colour;
pub use layer::Layer;
pub use number::number;
pub use page::{Page, PlotError};
pub use panel::Panel;
pub use svg::escaped;
