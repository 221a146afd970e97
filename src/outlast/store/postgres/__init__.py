"""The PostgreSQL backend: runs of many hosts in one database. psycopg is imported when a store is opened."""
