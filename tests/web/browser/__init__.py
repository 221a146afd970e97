"""Every page and every act in a real browser, against the real `outlast ui`."""
