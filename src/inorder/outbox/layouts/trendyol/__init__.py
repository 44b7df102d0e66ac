"""The four tables of Trendyol's PollingOutboxPublisher, taken over as they are: events, missing, exceeded, offset."""
