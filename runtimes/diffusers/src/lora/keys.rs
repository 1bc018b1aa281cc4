//! Names of tensors in adapters.

/// A factor of a layer's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Down,
    Up,
    Alpha,
}

/// Suffixes of names: of PEFT, older diffusers, and kohya's scripts.
const ENDINGS: [(&str, Part); 11] = [
    (".lora_A.weight", Part::Down),
    (".lora_B.weight", Part::Up),
    (".lora_A.default.weight", Part::Down),
    (".lora_B.default.weight", Part::Up),
    (".lora_down.weight", Part::Down),
    (".lora_up.weight", Part::Up),
    (".lora.down.weight", Part::Down),
    (".lora.up.weight", Part::Up),
    (".lora_linear_layer.down.weight", Part::Down),
    (".lora_linear_layer.up.weight", Part::Up),
    (".alpha", Part::Alpha),
];

/// Layers of SDXL by their names in its original code, and in diffusers. Numbers are of the first block layer of each.
const RESNET: [(&str, &str); 4] = [
    ("in_layers_2", "conv1"),
    ("emb_layers_1", "time_emb_proj"),
    ("out_layers_3", "conv2"),
    ("skip_connection", "conv_shortcut"),
];

/// The layer and the factor that a tensor's name contains.
pub(super) fn split(name: &str) -> Option<(String, Part)> {
    let (layer, part) = ENDINGS.iter().find_map(|(end, part)| Some((name.strip_suffix(end)?, *part)))?;
    let layer = layer.strip_prefix("base_model.model.").unwrap_or(layer);
    // The oldest form had layers in an attention's processor: `attn1.processor.to_q_lora.down.weight`.
    Some((layer.to_owned(), part))
}

/// The name of a layer in one form, whichever it had.
pub(super) fn flat(layer: &str) -> String {
    let layer = layer.replace(".processor.", ".").replace('.', "_");
    let rest = |prefix: &str| layer.strip_prefix(prefix);
    if let Some(rest) = rest("lora_unet_") {
        return format!("unet_{}", of_first_code(rest).unwrap_or_else(|| rest.to_owned()));
    }
    if let Some(rest) = rest("lora_te1_").or_else(|| rest("lora_te_")) {
        return format!("text_encoder_{rest}");
    }
    if let Some(rest) = rest("lora_te2_") {
        return format!("text_encoder_2_{rest}");
    }
    layer
}

/// `input_blocks_4_1_proj_in` as in diffusers: `down_blocks_1_attentions_0_proj_in`.
fn of_first_code(name: &str) -> Option<String> {
    let number = |text: &str| text.parse::<usize>().ok();
    let (blocks, rest) = name.split_once("_blocks_").or_else(|| name.split_once("_block_"))?;
    let mut words = rest.splitn(3, '_');
    let first = number(words.next()?)?;
    if blocks == "middle" {
        let tail = rest.split_once('_')?.1;
        return Some(match first {
            1 => format!("mid_block_attentions_0_{tail}"),
            _ => format!("mid_block_resnets_{}_{}", first / 2, resnet(tail)),
        });
    }
    let (kind, tail) = (number(words.next()?)?, words.next()?);
    let (side, block, layer) = match blocks {
        "input" => ("down", (first.checked_sub(1)?) / 3, (first - 1) % 3),
        "output" => ("up", first / 3, first % 3),
        _ => return None,
    };
    Some(match (kind, tail) {
        (0, "op") => format!("down_blocks_{block}_downsamplers_0_conv"),
        (1 | 2, "conv") => format!("up_blocks_{block}_upsamplers_0_conv"),
        (0, tail) => format!("{side}_blocks_{block}_resnets_{layer}_{}", resnet(tail)),
        (_, tail) => format!("{side}_blocks_{block}_attentions_{layer}_{tail}"),
    })
}

fn resnet(tail: &str) -> &str {
    RESNET.iter().find(|(first, _)| *first == tail).map_or(tail, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_layer_in_all_forms_are_equal() {
        let wanted = "unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_q";
        for name in [
            "unet.down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q",
            "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_q",
            "lora_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_q",
        ] {
            assert_eq!(flat(name), wanted);
        }
        assert_eq!(flat("lora_unet_middle_block_1_proj_in"), "unet_mid_block_attentions_0_proj_in");
        assert_eq!(flat("lora_unet_output_blocks_5_0_in_layers_2"), "unet_up_blocks_1_resnets_2_conv1");
        assert_eq!(flat("lora_te_text_model_x"), "text_encoder_text_model_x");
        assert_eq!(flat("lora_te2_text_model_x"), "text_encoder_2_text_model_x");
    }

    #[test]
    fn factors_are_recognized_by_their_suffixes() {
        assert_eq!(split("unet.a.lora_A.weight"), Some(("unet.a".to_owned(), Part::Down)));
        assert_eq!(split("lora_unet_a.alpha"), Some(("lora_unet_a".to_owned(), Part::Alpha)));
        assert_eq!(split("lora_unet_a.hada_w1_a"), None);
    }
}
