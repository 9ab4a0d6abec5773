"""What LangGraph Server and Aegra load of this system: graphs, authentication, and the HTTP service inside the host."""
