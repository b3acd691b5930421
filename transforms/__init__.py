"""How a record becomes the next record, stage by stage.

    ReadPrompts            files -> Prompt
    CallOpenRouter         Prompt -> Exchange
    Observe                Exchange -> what each provider does to counts (habits)
    Reconstruct            Exchange -> Rendering
    Tokenize               Rendering -> Sample
    ValidateSpecialTokens  Sample -> Verdict
    PartitionByVerdict     Verdict -> good, bad
    WriteSamples, WriteRejections

This module imports nothing: an import here would make `transforms.chat` load Beam.
"""
