"""Diffusion pipelines and the training of diffusion models. Whatever has diffusers' attributes will do."""
