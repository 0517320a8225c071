"""From spans to what learners eat. Pure: no store, no clock, no tokenizer; nothing that a span does not hold."""

from agl_streams.adapters.triplets import TripletAdapter, TripletBatch

__all__ = ["TripletAdapter", "TripletBatch"]
