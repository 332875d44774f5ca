//! Writes a sequence of pictures as a video.
//!
//! GIF is encoded here. MP4 needs ffmpeg; without it, the pictures are written to a folder as PNG, with a message.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use envs::Image;

/// Factor by which an MP4 enlarges the pictures.
const ENLARGE: usize = 3;

/// A video that is being written.
pub struct Video {
    path: PathBuf,
    /// Written until the video is complete: a file beside `path`, or the folder of pictures.
    partial: PathBuf,
    sink: Sink,
}

enum Sink {
    Gif { encoder: gif::Encoder<BufWriter<File>>, delay: u16 },
    Mp4(Child),
    Png { count: u64, why: &'static str },
}

impl Video {
    /// Opens a video. The file extension chooses the format: `.gif`, `.mp4`, or none for a folder of PNG pictures.
    pub fn create(path: &Path, first: &Image, pictures_per_second: f64) -> Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).with_context(|| format!("can't create {}", folder.display()))?;
        }
        if path.is_dir() {
            return Self::png(path, "");
        }
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        match ending.as_deref().and_then(|ending| ending.to_str()) {
            Some("gif") => Self::gif(path, first, pictures_per_second),
            Some("mp4") => match ffmpeg(&path.with_extension("partial.mp4"), first, pictures_per_second) {
                Some(child) => {
                    let partial = path.with_extension("partial.mp4");
                    Ok(Self { path: path.into(), partial, sink: Sink::Mp4(child) })
                }
                None => Self::png(&path.with_extension(""), "ffmpeg, which encodes MP4, was not found"),
            },
            None => Self::png(path, ""),
            Some(other) => bail!("can't write .{other}: use .mp4, .gif, or a folder for PNG pictures"),
        }
    }

    fn gif(path: &Path, first: &Image, pictures_per_second: f64) -> Result<Self> {
        let partial = path.with_extension("partial.gif");
        let file = File::create(&partial).with_context(|| format!("can't write {}", path.display()))?;
        let mut encoder =
            gif::Encoder::new(BufWriter::new(file), first.width as u16, first.height as u16, &[])?;
        encoder.set_repeat(gif::Repeat::Infinite)?;
        let delay = (100.0 / pictures_per_second).round() as u16;
        Ok(Self { path: path.into(), partial, sink: Sink::Gif { encoder, delay } })
    }

    fn png(folder: &Path, why: &'static str) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("can't create {}", folder.display()))?;
        Ok(Self { path: folder.into(), partial: folder.into(), sink: Sink::Png { count: 0, why } })
    }

    /// Adds a picture of the same size as the first.
    pub fn add(&mut self, image: &Image) -> Result<()> {
        let path = &self.path;
        match &mut self.sink {
            Sink::Gif { encoder, delay } => {
                let mut frame = indexed(image);
                frame.delay = *delay;
                encoder.write_frame(&frame).with_context(|| format!("can't write {}", path.display()))
            }
            Sink::Mp4(child) => {
                let input = child.stdin.as_mut().context("ffmpeg has no standard input")?;
                input.write_all(&image.rgb).context("ffmpeg stopped early; see its message above")
            }
            Sink::Png { count, .. } => {
                *count += 1;
                write_png(&path.join(format!("{count:06}.png")), image)
            }
        }
    }

    /// Closes the video and describes what was written.
    pub fn finish(self) -> Result<String> {
        let path = self.path.display();
        match self.sink {
            Sink::Gif { encoder, .. } => {
                encoder.into_inner()?.flush()?;
                fs::rename(&self.partial, &self.path)?;
                Ok(format!("video in {path}"))
            }
            Sink::Mp4(mut child) => {
                drop(child.stdin.take());
                let status = child.wait()?;
                if !status.success() {
                    bail!("ffmpeg failed ({status}); try a .gif instead");
                }
                fs::rename(&self.partial, &self.path)?;
                Ok(format!("video in {path}"))
            }
            Sink::Png { count, why: "" } => Ok(format!("{count} PNG pictures in {path}/")),
            Sink::Png { count, why } => {
                Ok(format!("{why}: {count} PNG pictures in {path}/ instead (or ask for .gif)"))
            }
        }
    }
}

/// A GIF picture. Its colours are exact if there are at most 256, as in all supported games.
fn indexed(image: &Image) -> gif::Frame<'static> {
    let (pixels, _) = image.rgb.as_chunks::<3>();
    let mut palette: Vec<[u8; 3]> = pixels.to_vec();
    palette.sort_unstable();
    palette.dedup();
    let (width, height) = (image.width as u16, image.height as u16);
    if palette.len() > 256 {
        return gif::Frame::from_rgb_speed(width, height, &image.rgb, 10);
    }
    let index = |pixel: &[u8; 3]| palette.binary_search(pixel).unwrap_or_default() as u8;
    let indices: Vec<u8> = pixels.iter().map(index).collect();
    gif::Frame::from_palette_pixels(width, height, indices, palette.concat(), None)
}

fn ffmpeg(path: &Path, first: &Image, pictures_per_second: f64) -> Option<Child> {
    let (width, height) = (first.width, first.height);
    Command::new("ffmpeg")
        .args(["-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24"])
        .args(["-s", &format!("{width}x{height}"), "-r", &pictures_per_second.to_string(), "-i", "-"])
        .args([
            "-vf",
            &format!("scale={}:{}:flags=neighbor", width * ENLARGE / 2 * 2, height * ENLARGE / 2 * 2),
        ])
        .args(["-pix_fmt", "yuv420p"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .ok()
}

fn write_png(path: &Path, image: &Image) -> Result<()> {
    let file = File::create(path).with_context(|| format!("can't write {}", path.display()))?;
    let mut encoder = png::Encoder::new(BufWriter::new(file), image.width as u32, image.height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&image.rgb)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(shade: u8) -> Image {
        Image { width: 4, height: 2, rgb: (0..24).map(|i| if i % 2 == 0 { shade } else { 7 }).collect() }
    }

    #[test]
    fn a_gif_keeps_every_colour() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.gif");
        let mut video = Video::create(&path, &image(1), 15.0).unwrap();
        video.add(&image(1)).unwrap();
        video.add(&image(200)).unwrap();
        video.finish().unwrap();
        let mut options = gif::DecodeOptions::new();
        options.set_color_output(gif::ColorOutput::RGBA);
        let mut decoder = options.read_info(File::open(&path).unwrap()).unwrap();
        for shade in [1, 200] {
            let frame = decoder.read_next_frame().unwrap().unwrap();
            let rgb: Vec<u8> = frame.buffer.chunks(4).flat_map(|pixel| pixel[..3].to_vec()).collect();
            assert_eq!(rgb, image(shade).rgb);
        }
        assert!(decoder.read_next_frame().unwrap().is_none());
    }

    #[test]
    fn a_folder_gets_png_pictures_and_unknown_extensions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut video = Video::create(&folder.path().join("pictures"), &image(1), 15.0).unwrap();
        video.add(&image(1)).unwrap();
        assert!(video.finish().unwrap().contains("1 PNG"));
        assert!(folder.path().join("pictures/000001.png").is_file());
        assert!(Video::create(&folder.path().join("a.avi"), &image(1), 15.0).is_err());
    }
}
