"""The node agent, the inventory controller and the commands around them."""
