// Which page of the guide belongs to which panel, and which docstrings: the one table of these links.
// A link is shown where the documentation was built with that page; the docstrings are always there.

export const GUIDE = {
  logits: { page: "01-scores-to-probabilities", help: "hm.softmax" },
  temperature: { page: "06-temperature", help: "hm.plots.sweep" },
  order: { page: "03-order-shift-scale", help: "hm.laws" },
  numbers: { page: "04-numerics", help: "hm.log_softmax" },
  logsumexp: { page: "05-logsumexp", help: "hm.smoothmax" },
  jacobian: { page: "08-derivatives", help: "hm.softmax_jacobian" },
  loss: { page: "09-losses", help: "hm.cross_entropy" },
  sampling: { page: "07-sampling", help: "hm.Sampler" },
  attention: { page: "10-attention", help: "hm.attention_weights" },
  calibration: { page: "11-calibration", help: "hm.calibration.fit_temperature" },
};
