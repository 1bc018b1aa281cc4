//! Approximate images of latents without the autoencoder: each channel is nearly a color.

/// Red, green and blue of each of the four channels: a linear fit of Stable Diffusion 1's images to their latents.
const PLAIN: [[f32; 3]; 4] =
    [[0.35, 0.23, 0.32], [0.33, 0.5, 0.24], [-0.28, 0.18, 0.27], [-0.21, -0.26, -0.72]];
/// The same for SDXL, whose channels are one of luminance and two of color.
const XL: [[f32; 3]; 4] =
    [[0.39, 0.41, 0.45], [-0.26, -0.02, 0.07], [0.06, 0.17, -0.08], [-0.31, -0.24, -0.21]];

/// Bytes of `[height, width, 3]` for latents `[height, width, channels]`, one pixel each.
pub fn preview(latents: &[f32], channels: usize, is_xl: bool) -> Vec<u8> {
    let colours = if is_xl { XL } else { PLAIN };
    let mut bytes = Vec::with_capacity(latents.len() / channels.max(1) * 3);
    for pixel in latents.chunks_exact(channels) {
        let mut sums = [0.5_f32; 3];
        for (value, colour) in pixel.iter().zip(colours) {
            sums.iter_mut().zip(colour).for_each(|(sum, part)| *sum += 0.5 * value * part);
        }
        bytes.extend(sums.map(|sum| (sum.clamp(0.0, 1.0) * 255.0).round() as u8));
    }
    bytes
}
